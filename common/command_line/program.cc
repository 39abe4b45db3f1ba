#include "common/command_line/program.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "common/build_info.h"
#include "common/command_line/completion.h"

namespace trainyard::cli {
namespace {

Manual AboutCompletion(const std::string& program) {
  return {.description =
              "Prints a script with which a shell completes commands, options, the words that an option "
              "allows, and names of files. It is of this build: make it anew after an update.",
          .environment = {},
          .files = {},
          .exit_codes = {{"0", "The script is printed."},
                         {"2", "A shell that is not known."},
                         {"74", "It cannot be written."}},
          .examples = {{"source <(" + program + " completion bash)", "For this bash alone"},
                       {program + " completion zsh > ~/.zfunc/_" + program, "For zsh, with ~/.zfunc in fpath"},
                       {program + " completion fish > ~/.config/fish/completions/" + program + ".fish", "For fish"}},
          .see_also = {"docs/cli.md"}};
}

Manual AboutManual(const std::string& program) {
  return {.description = "Prints the manual pages of all commands, which --help prints one by one.",
          .environment = {},
          .files = {},
          .exit_codes = {{"0", "The manual is printed."},
                         {"2", "A format that is not known."},
                         {"74", "It cannot be written."}},
          .examples = {{program + " manual | less", "To read"},
                       {program + " manual --format man > " + program + ".1 && man ./" + program + ".1",
                        "As man shows it"}},
          .see_also = {"docs/cli.md, which is made of it"}};
}

std::function<std::string(const std::string&)> OneOf(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& word) {
    std::string known;
    for (const std::string& each : words) {
      if (each == word) return std::string();
      known += (known.empty() ? "" : ", ") + each;
    }
    return word + " is not allowed; expected one of " + known;
  };
}

}  // namespace

void AddFlags(CLI::App& app, const Program& program) {
  app.set_help_flag("-h,--help", "print this page");
  app.set_version_flag("--version", program.version, "print version, commit, build and libraries");
}

void AddReferences(CLI::App& app, Program& program, References& references) {
  CLI::App* completion = app.add_subcommand("completion", "prints a script for a shell's completion");
  completion->add_option("shell", references.shell, "the shell")
      ->required()
      ->check(OneOf({"bash", "zsh", "fish"}))
      ->type_name("bash|zsh|fish");
  CLI::App* manual = app.add_subcommand("manual", "prints the manual pages of all commands");
  manual->add_option("--format", references.format, "plain text, Markdown, or the language of man(1)")
      ->capture_default_str()
      ->check(OneOf({"text", "markdown", "man"}))
      ->type_name("text|markdown|man");
  program.manuals[program.name + " completion"] = AboutCompletion(program.name);
  program.manuals[program.name + " manual"] = AboutManual(program.name);
}

std::string Reference(const CLI::App& app, const Program& program, const References& references,
                      const std::string& command) {
  const Command root = Describe(app, program.name);
  if (command == "completion") {
    return references.shell == "bash"  ? BashCompletion(root)
           : references.shell == "zsh" ? ZshCompletion(root)
                                       : FishCompletion(root);
  }
  if (references.format == "markdown") return ManualMarkdown(root, program.manuals);
  if (references.format == "man") return ManualRoff(root, program.manuals, Build().version);
  std::string pages;
  for (const Command* page : Everything(root)) {
    const auto manual = program.manuals.find(page->path);
    pages +=
        (pages.empty() ? "" : "\n\n") + HelpText(*page, manual == program.manuals.end() ? Manual() : manual->second);
  }
  return pages;
}

std::string Help(const CLI::App& app, const Program& program) {
  std::string path = program.name;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  const Command root = Describe(app, program.name);
  const std::vector<const Command*> all = Everything(root);
  const auto asked = std::find_if(all.begin(), all.end(), [&](const Command* page) { return page->path == path; });
  const auto manual = program.manuals.find(path);
  return HelpText(**asked, manual == program.manuals.end() ? Manual() : manual->second);
}

int Printed(const std::string& program, int code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return code;
  // What was written before may have failed long ago: the next byte fails for the same reason.
  std::clearerr(stdout);
  const bool still = std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0;
  const std::string reason = still ? std::string(": ") + std::strerror(errno) : "";
  std::fprintf(stderr, "%s: the output cannot be written%s\n", program.c_str(), reason.c_str());
  return code == 0 ? kOutputLost : code;
}

}  // namespace trainyard::cli
