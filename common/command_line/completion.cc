#include "common/command_line/completion.h"

#include <algorithm>
#include <string_view>

namespace trainyard::cli {
namespace {

enum class Kind { kFlag, kWords, kFiles, kDirectories, kFree };

Kind KindOf(const Option& option) {
  if (option.value.empty()) return Kind::kFlag;
  if (!option.Choices().empty()) return Kind::kWords;
  if (option.value == "FILE" || option.value == "PATH") return Kind::kFiles;
  return option.value == "DIR" ? Kind::kDirectories : Kind::kFree;
}

std::string Joined(const std::vector<std::string>& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// The first clause, without what any of the shells would take for its own.
std::string Short(const std::string& text) {
  std::string words;
  for (const char c : text.substr(0, std::min({text.find(';'), text.find(". "), text.find(" (")}))) {
    if (c == '\'') {
      words += "'\\''";  // in all three: out of the quotes, one of its own, and in again
    } else if (std::string_view("[]:\"\\`$(){}").find(c) == std::string_view::npos) {
      words += c;
    }
  }
  if (words.ends_with(".")) words.pop_back();
  return words;
}

// A name of a function, in any of the shells.
std::string Function(const std::string& program) {
  std::string name = "_" + program;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// 'trainyard launch' | 'trainyard train' ...: a word that leads from one command to the next.
std::string Ways(const Command& program, const std::string& between) {
  std::vector<std::string> ways;
  for (const Command* command : Everything(program)) {
    if (command != &program) ways.push_back("'" + command->path + "'");
  }
  return Joined(ways, between);
}

std::vector<std::string> Flags(const Command& command) {
  std::vector<std::string> names;
  for (const Option& option : command.options) {
    if (!option.positional) names.push_back(option.name);
    if (!option.positional && !option.brief.empty()) names.push_back(option.brief);
  }
  return names;
}

std::string BashOf(Kind kind, const Option& option) {
  switch (kind) {
    case Kind::kFiles:
      return "kind=files";
    case Kind::kDirectories:
      return "kind=directories";
    case Kind::kWords:
      return "words='" + Joined(option.Choices()) + "'";
    default:
      return ":";
  }
}

// What may stand behind the command's name, but for its flags.
std::string BashOperands(const Command& command) {
  std::vector<std::string> below;
  for (const Command& other : command.commands) below.push_back(other.name);
  if (!below.empty()) return "words='" + Joined(below) + "'";
  for (const Option& option : command.options) {
    if (option.positional) return BashOf(KindOf(option), option);
  }
  return "words='" + Joined(Flags(command)) + "'";
}

std::string ZshValue(const Option& option) {
  switch (KindOf(option)) {
    case Kind::kFiles:
      return ":" + option.value + ":_files";
    case Kind::kDirectories:
      return ":" + option.value + ":_files -/";
    case Kind::kWords:
      return ":value:(" + Joined(option.Choices()) + ")";
    case Kind::kFree:
      return ":" + Short(option.value) + ":";
    default:
      return "";
  }
}

std::string ZshArguments(const Command& command) {
  std::string words;
  for (const Option& option : command.options) {
    if (option.positional) {
      words += " '" + ZshValue(option) + "'";
      continue;
    }
    const std::string repeats = option.repeats ? "*" : "", behind = "[" + Short(option.text) + "]" + ZshValue(option);
    words += " '" + repeats + option.name + (option.value.empty() ? "" : "=") + behind + "'";
    if (!option.brief.empty()) words += " '" + repeats + option.brief + behind + "'";
  }
  return "_arguments" + words;
}

std::string FishOf(const Option& option) {
  switch (KindOf(option)) {
    case Kind::kFiles:
      return " -r -F";
    case Kind::kDirectories:
      return " -x -a '(__fish_complete_directories)'";
    case Kind::kWords:
      return " -x -a '" + Joined(option.Choices()) + "'";
    case Kind::kFree:
      return " -x";
    default:
      return "";
  }
}

}  // namespace

std::string BashCompletion(const Command& program) {
  const std::string function = Function(program.name);
  std::string values, operands, flags;
  for (const Command* command : Everything(program)) {
    for (const Option& option : command->options) {
      const Kind kind = KindOf(option);
      if (option.positional || kind == Kind::kFlag) continue;
      values += "    '" + command->path + " " + option.name + "'";
      if (!option.brief.empty()) values += " | '" + command->path + " " + option.brief + "'";
      values += ") " + BashOf(kind, option) + " ;;\n";
    }
    flags += "        '" + command->path + "') words='" + Joined(Flags(*command)) + "' ;;\n";
    operands += "        '" + command->path + "') " + BashOperands(*command) + " ;;\n";
  }
  return "# Completion of " + program.name + " for bash: source <(" + program.name + " completion bash)\n" + function +
         "() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at='" +
         program.name +
         "' kind=words words= i\n"
         "  # bash makes three words of --name=value.\n"
         "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    case \"$at ${COMP_WORDS[i]}\" in\n"
         "      " +
         Ways(program, " | ") +
         ") at=\"$at ${COMP_WORDS[i]}\" ;;\n"
         "      *) break ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$at $prev\" in\n" +
         values +
         "    *)\n"
         "      if [[ $cur == -* ]]; then case $at in\n" +
         flags + "      esac; else case $at in\n" + operands +
         "      esac; fi ;;\n"
         "  esac\n"
         "  COMPREPLY=()\n"
         "  case $kind in\n"
         "    files) compopt -o filenames 2>/dev/null || :; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
         "    directories) compopt -o filenames 2>/dev/null || :; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
         "    *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
         "  esac\n"
         "}\n"
         "complete -F " +
         function + " " + program.name + "\n";
}

std::string ZshCompletion(const Command& program) {
  const std::string function = Function(program.name);
  std::string cases;
  for (const Command* command : Everything(program)) {
    cases += "    ('" + command->path + "')\n";
    if (command->commands.empty()) {
      cases += "      " + ZshArguments(*command) + " ;;\n";
      continue;
    }
    cases += "      if [[ $PREFIX == -* ]]; then " + ZshArguments(*command) + "; return; fi\n      commands=(";
    for (const Command& below : command->commands) cases += "'" + below.name + ":" + Short(below.summary) + "' ";
    cases += ")\n      _describe command commands ;;\n";
  }
  return "#compdef " + program.name + "\n# Completion of " + program.name +
         " for zsh: put this file as _NAME into a folder of $fpath, or source it behind compinit.\n" + function +
         "() {\n"
         "  local at='" +
         program.name +
         "' i\n"
         "  local -a commands\n"
         "  for ((i = 2; i < CURRENT; i++)); do\n"
         "    case \"$at ${words[i]}\" in\n"
         "      (" +
         Ways(program, "|") +
         ") at=\"$at ${words[i]}\" ;;\n"
         "      (*) break ;;\n"
         "    esac\n"
         "  done\n"
         "  shift $((i - 2)) words\n"
         "  ((CURRENT -= i - 2))\n"
         "  case $at in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [[ ${funcstack[1]} == " +
         function + " ]]; then " + function + " \"$@\"; else compdef " + function + " " + program.name + "; fi\n";
}

std::string FishCompletion(const Command& program) {
  const std::string function = "_" + Function(program.name) + "_at";
  std::string text = "# Completion of " + program.name + " for fish: " + program.name +
                     " completion fish > ~/.config/fish/completions/" + program.name +
                     ".fish\n"
                     "function " +
                     function +
                     "\n"
                     "    set -l at '" +
                     program.name +
                     "'\n"
                     "    for word in (commandline -opc)[2..-1]\n"
                     "        switch \"$at $word\"\n"
                     "            case " +
                     Ways(program, " ") +
                     "\n"
                     "                set at \"$at $word\"\n"
                     "            case '*'\n"
                     "                break\n"
                     "        end\n"
                     "    end\n"
                     "    test \"$at\" = \"$argv\"\n"
                     "end\n"
                     "complete -c " +
                     program.name + " -f\n";
  for (const Command* command : Everything(program)) {
    const std::string at = "complete -c " + program.name + " -n '" + function + " " + command->path + "'";
    for (const Command& below : command->commands)
      text += at + " -a " + below.name + " -d '" + Short(below.summary) + "'\n";
    for (const Option& option : command->options) {
      text += at;
      if (!option.positional) {
        text += " -l " + option.name.substr(2) + (option.brief.empty() ? "" : " -s " + option.brief.substr(1));
        text += FishOf(option);
      } else if (KindOf(option) != Kind::kFree) {
        text += KindOf(option) == Kind::kFiles ? " -F" : FishOf(option).substr(3);  // an operand has no -x
      }
      text += " -d '" + Short(option.text) + "'\n";
    }
  }
  return text;
}

}  // namespace trainyard::cli
