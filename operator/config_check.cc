#include "operator/config_check.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "operator/api/json.h"
#include "operator/api/validation.h"
#include "operator/base/exit_codes.h"
#include "operator/base/file.h"
#include "operator/base/json_access.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr auto kDeadline = std::chrono::seconds(30);
constexpr size_t kMostText = 64 << 10;
constexpr int kNotEnoughMemory = 71;  // of `trainyard plan`

// Whether spec.config is what the container's program reads.
bool ReadsConfig(const Json& job) {
  const Json& spec = job["spec"];
  const Json* trainer = api::TrainerContainer(json::Field(spec, "template"));
  if (!trainer || !json::Field(spec, "config").is_object()) return false;
  std::vector<std::string> words;
  for (const char* list : {"command", "args"}) {
    for (const Json& word : json::List(*trainer, list)) words.push_back(word.is_string() ? word : Json(""));
  }
  const bool launch =
      words.size() >= 2 && std::filesystem::path(words[0]).filename() == "trainyard" && words[1] == "launch";
  return launch &&
         std::none_of(words.begin(), words.end(), [](const auto& word) { return word.starts_with("--config"); });
}

struct Ended {
  int code = -1;  // -1: it did not end by itself
  std::string text;
};

// Reads what the process says until it ends, or until the deadline, which kills it.
Ended Await(pid_t pid, int from) {
  Ended ended;
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  char part[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = from, .events = POLLIN, .revents = 0};
    const int polled = poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (polled < 0 && errno == EINTR) continue;
    const ssize_t got = polled > 0 ? read(from, part, sizeof part) : -1;
    if (got == 0) break;
    if (got > 0 && ended.text.size() < kMostText) ended.text.append(part, static_cast<size_t>(got));
    if (got < 0) kill(pid, SIGKILL);
    if (got < 0) break;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

// `program plan` on the configuration, which it finds as an open file.
Ended RunPlan(const std::string& program, const std::string& config, int64_t ranks, std::string& place) {
  Ended failed;
  const int file = memfd_create("config", 0);
  int pipes[2];
  if (file < 0 || WriteAll(file, config) != 0 || pipe2(pipes, O_CLOEXEC) != 0) return failed;
  place = "/proc/self/fd/" + std::to_string(file);
  std::vector<std::string> words = {program, "plan", "--config", place, "--ranks", std::to_string(ranks)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipes[1], STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipes[1]);
  if (error == 0) failed = Await(pid, pipes[0]);
  close(pipes[0]);
  close(file);
  return failed;
}

// What the trainer says is wrong with the file at `place`: a line each.
std::vector<std::string> Problems(const std::string& text, const std::string& place) {
  std::vector<std::string> problems;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string& prefix : {std::string("trainyard: "), place + ": "}) {
      if (line.starts_with(prefix)) line.erase(0, prefix.size());
    }
    if (!line.empty()) problems.push_back("spec.config: " + line);
  }
  if (problems.empty()) problems.emplace_back("spec.config: refused, without a word");
  return problems;
}

}  // namespace

ConfigVerdict CheckConfig(const Json& job) {
  if (!ReadsConfig(job)) return {};
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).replace_filename("trainyard");
  if (access(program.c_str(), X_OK) != 0)
    return {.problems = {},
            .unchecked = "spec.config is not checked: there is no " + program + ", which knows its fields"};
  std::vector<api::FieldError> none;
  const api::JobSpec spec = api::JobFromJson(job, none).spec;
  std::string place;
  const Ended ended = RunPlan(program, job["spec"]["config"].dump(), spec.workers * api::ProcsPerWorker(spec), place);
  if (ended.code == kExitInvalid) return {.problems = Problems(ended.text, place), .unchecked = ""};
  // What this machine's memory holds says nothing about the job's.
  if (ended.code == 0 || ended.code == kNotEnoughMemory) return {};
  return {.problems = {},
          .unchecked = "spec.config is not checked: " + program + " plan ended with " + std::to_string(ended.code)};
}

}  // namespace trainyard
