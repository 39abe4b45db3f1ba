#include "common/command_line/manual.h"

#include <algorithm>
#include <cctype>

namespace trainyard::cli {
namespace {

constexpr size_t kColumns = 80;

// A page before it has a form. A section has paragraphs, or entries.
struct Section {
  std::string title;
  std::string text;
  std::vector<Entry> entries;
};

std::string Sentence(std::string text) {
  if (text.empty()) return text;
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with(".") ? text : text + ".";
}

std::string TermOf(const Option& option) {
  if (option.positional) return option.name;
  std::string term = option.brief.empty() || option.name.empty() ? option.brief : option.brief + ", ";
  term += option.name;
  return option.value.empty() ? term : term + " " + option.value;
}

std::string TextOf(const Option& option) {
  std::string text = Sentence(option.text);
  if (option.repeats) text += " May be repeated.";
  if (option.required && !option.positional) text += " Required.";
  if (!option.initial.empty()) text += " Default: " + option.initial + ".";
  return text;
}

// "trainyard eval [OPTIONS] --checkpoint DIR"
std::string Synopsis(const Command& command) {
  std::string line = command.path, behind;
  bool optional = false;
  for (const Option& option : command.options) {
    const std::string word = TermOf(option);
    if (option.positional) {
      behind += option.required ? " " + word : " [" + word + "]";
    } else if (option.required) {
      line += " " + option.name + " " + option.value;
    } else {
      optional = true;
    }
  }
  if (!command.commands.empty()) behind += " COMMAND";
  return line + (optional ? " [OPTIONS]" : "") + behind;
}

std::vector<Section> PageOf(const Command& command, const Manual& manual) {
  std::vector<Section> page = {{"NAME", command.path + " - " + command.summary, {}},
                               {"SYNOPSIS", Synopsis(command), {}},
                               {"DESCRIPTION", manual.description, {}}};
  Section commands{"COMMANDS", "", {}}, operands{"OPERANDS", "", {}}, options{"OPTIONS", "", {}};
  for (const Command& below : command.commands) commands.entries.push_back({below.name, Sentence(below.summary)});
  for (const Option& option : command.options)
    (option.positional ? operands : options).entries.push_back({TermOf(option), TextOf(option)});
  page.insert(page.end(), {commands, operands, options});
  page.push_back({"ENVIRONMENT", "", manual.environment});
  page.push_back({"FILES", "", manual.files});
  page.push_back({"EXIT STATUS", "", manual.exit_codes});
  page.push_back({"EXAMPLES", "", manual.examples});
  std::string others;
  for (const std::string& other : manual.see_also) others += (others.empty() ? "" : ", ") + other;
  page.push_back({"SEE ALSO", others, {}});
  std::erase_if(page, [](const Section& section) { return section.text.empty() && section.entries.empty(); });
  return page;
}

// Words of `text`, each paragraph broken into lines, `indent` blanks before each.
std::string Wrapped(const std::string& text, size_t indent) {
  std::string lines, line;
  const auto flush = [&] {
    if (!line.empty()) lines += std::string(indent, ' ') + line + "\n";
    line.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!word.empty() && !line.empty() && indent + line.size() + 1 + word.size() > kColumns) flush();
    if (!word.empty()) line += (line.empty() ? "" : " ") + word;
    if (text.compare(end, 2, "\n\n") == 0) {
      flush();
      lines += "\n";
    }
    at = end + 1;
  }
  flush();
  return lines;
}

const Manual& ManualOf(const Command& command, const Manuals& manuals) {
  static const Manual none;
  const auto found = manuals.find(command.path);
  return found == manuals.end() ? none : found->second;
}

// roff reads a backslash, and a point or an apostrophe at a line's start, as its own.
std::string Roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  return escaped.starts_with(".") || escaped.starts_with("'") ? "\\&" + escaped : escaped;
}

std::string RoffParagraphs(const std::string& text) {
  std::string lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find("\n\n", begin), text.size());
    lines += (begin == 0 ? "" : ".PP\n") + Roff(text.substr(begin, end - begin)) + "\n";
    begin = end + 2;
  }
  return lines;
}

// What Markdown and the generator of the site would take for markup.
std::string Plain(const std::string& text) {
  std::string escaped;
  for (const char c : text)
    escaped += c == '<' || c == '*' || c == '_' || c == '|' ? std::string("\\") + c : std::string(1, c);
  return escaped;
}

// A page of docs/, where the reader already is.
std::string Linked(const std::string& text) {
  std::string linked;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = std::min(text.find("docs/", at), text.size());
    const size_t end = std::min(text.find(".md", begin), text.size());
    linked += Plain(text.substr(at, begin - at));
    if (begin == text.size()) break;
    const std::string page = text.substr(begin + 5, end + 3 - begin - 5);
    linked += "[" + page + "](" + page + ")";
    at = end + 3;
  }
  return linked;
}

void MarkdownSection(const Section& section, std::string& page) {
  if (section.title == "NAME") {
    page += Linked(Sentence(section.text.substr(section.text.find(" - ") + 3))) + "\n\n";
    return;
  }
  std::string title = section.title.substr(0, 1);
  for (const char c : section.title.substr(1)) title += static_cast<char>(std::tolower(c));
  page += section.title == "DESCRIPTION" ? "" : "**" + title + "**" + (section.text.empty() ? "" : ": ");
  page += (section.title == "SYNOPSIS" ? "`" + section.text + "`" : Linked(section.text)) + "\n\n";
  for (const Entry& entry : section.entries)
    page += "- `" + entry.term + "`" + (entry.text.empty() ? "" : ": " + Linked(entry.text)) + "\n";
  if (!section.entries.empty()) page += "\n";
}

void RoffSection(const Section& section, const std::string& heading, std::string& page) {
  page += heading + " \"" + section.title + "\"\n" + RoffParagraphs(section.text);
  for (const Entry& entry : section.entries) page += ".TP\n.B " + Roff(entry.term) + "\n" + Roff(entry.text) + "\n";
}

}  // namespace

std::string HelpText(const Command& command, const Manual& manual) {
  std::string page;
  for (const Section& section : PageOf(command, manual)) {
    page += (page.empty() ? "" : "\n") + section.title + "\n" + Wrapped(section.text, 4);
    bool first = true;
    for (const Entry& entry : section.entries) {
      if (section.title == "EXAMPLES") {
        page += (first ? "" : "\n") + Wrapped(entry.text + (entry.text.empty() ? "" : ":"), 4) + "        " +
                entry.term + "\n";
      } else if (entry.term.size() <= 6) {  // beside it, as exit codes
        page += "    " + entry.term + std::string(8 - entry.term.size(), ' ') + Wrapped(entry.text, 12).substr(12);
      } else {
        page += Wrapped(entry.term, 4) + Wrapped(entry.text, 12);
      }
      first = false;
    }
  }
  return page;
}

std::string ManualMarkdown(const Command& program, const Manuals& manuals) {
  std::string pages;
  for (const Command* command : Everything(program)) {
    pages += (command == &program ? "## " : "### ") + command->path + "\n\n";
    for (const Section& section : PageOf(*command, ManualOf(*command, manuals))) MarkdownSection(section, pages);
  }
  pages.pop_back();
  return pages;
}

std::string ManualRoff(const Command& program, const Manuals& manuals, const std::string& version) {
  std::string upper;
  for (const char c : program.name) upper += static_cast<char>(std::toupper(c));
  std::string page = ".TH \"" + upper + "\" 1 \"\" \"Trainyard " + version + "\"\n";
  for (const Section& section : PageOf(program, ManualOf(program, manuals))) RoffSection(section, ".SH", page);
  for (const Command* command : Everything(program)) {
    if (command == &program) continue;
    page += ".SH \"" + command->path + "\"\n";
    for (const Section& section : PageOf(*command, ManualOf(*command, manuals))) RoffSection(section, ".SS", page);
  }
  return page;
}

}  // namespace trainyard::cli
