#include "operator/kube/exec_plugin.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "common/json.h"
#include "operator/base/descriptor.h"
#include "operator/base/json_access.h"

namespace trainyard::kube {
namespace {

constexpr char kVersion[] = "client.authentication.k8s.io/v1";
constexpr size_t kMaxOutput = 1 << 20;

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> EnvironmentOf(const ExecPlugin& plugin) {
  nlohmann::json info = {{"apiVersion", kVersion}, {"kind", "ExecCredential"}, {"spec", {{"interactive", false}}}};
  if (!plugin.cluster_json.empty()) info["spec"]["cluster"] = ParseJson(plugin.cluster_json);
  std::vector<std::string> out;
  for (char** variable = environ; *variable; ++variable) out.emplace_back(*variable);
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(out, [&](const std::string& entry) { return entry.starts_with(name + "="); });
    out.push_back(name + "=" + value);
  };
  for (const auto& [name, value] : plugin.env) set(name, value);
  set("KUBERNETES_EXEC_INFO", info.dump());
  return out;
}

// In a process group of its own, so that what it starts ends with it. 0, or the error.
int Spawn(const ExecPlugin& plugin, int output, pid_t& pid) {
  std::vector<std::string> args = {plugin.command}, environment = EnvironmentOf(plugin);
  args.insert(args.end(), plugin.args.begin(), plugin.args.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults, none;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);  // we ignore it, and what is ignored is inherited
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawnp(&pid, plugin.command.c_str(), &actions, &attributes, Pointers(args).data(),
                                 Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// All that it writes, until it closes its output.
Status ReadOutput(int output, const net::Wait& wait, std::string& text) {
  char part[4096];
  for (;;) {
    if (Status status = net::WaitFor(output, POLLIN, wait); !status.ok()) return status;
    const ssize_t got = read(output, part, sizeof part);
    if (got == 0) return Status::Ok();
    if (got < 0 && errno != EINTR && errno != EAGAIN) return Status(Code::kUnavailable, std::strerror(errno));
    if (got > 0) text.append(part, static_cast<size_t>(got));
    if (text.size() > kMaxOutput) return Status(Code::kUnavailable, "it wrote more than a MiB");
  }
}

// Waits for its end. kDeadline, kStopped: then it still runs. kUnavailable: nobody can say how it ended.
Status Reap(pid_t pid, const net::Wait& wait, int& end) {
  for (;;) {
    const pid_t ended = waitpid(pid, &end, WNOHANG);
    if (ended == pid) return Status::Ok();
    // Someone else took it, or whoever started this program has its children's ends thrown away.
    if (ended < 0 && errno != EINTR)
      return Status(Code::kUnavailable, std::string("its end is unknown: ") + std::strerror(errno));
    if (!wait.stop.Sleep(0.01)) return Status(Code::kStopped, "the operator stops");
    if (SteadyNow() >= wait.deadline) return Status(Code::kDeadline, "it did not end before the deadline");
  }
}

}  // namespace

Result<ExecCredential> ParseExecCredential(const std::string& text) {
  const auto answer = ParseJson(text);
  if (json::Text(answer, "apiVersion") != kVersion || json::Text(answer, "kind") != "ExecCredential")
    return Status(Code::kInvalid, std::string("its output is no ExecCredential of ") + kVersion);
  const nlohmann::json& status = json::Field(answer, "status");
  ExecCredential out{.token = json::Text(status, "token"),
                     .certificate_pem = json::Text(status, "clientCertificateData"),
                     .key_pem = json::Text(status, "clientKeyData"),
                     .expires = {}};
  if (out.token.empty() && (out.certificate_pem.empty() || out.key_pem.empty()))
    return Status(Code::kInvalid, "its output has neither status.token nor a certificate with a key");
  if (const std::string time = json::Text(status, "expirationTimestamp"); !time.empty()) {
    out.expires = ParseTime(time);
    if (!out.expires) return Status(Code::kInvalid, "status.expirationTimestamp: " + time + " is no time");
  }
  return out;
}

Result<ExecCredential> RunExecPlugin(const ExecPlugin& plugin, const net::Wait& wait) {
  const auto failed = [&](const Status& status) {
    const std::string hint = plugin.install_hint.empty() ? "" : " (" + plugin.install_hint + ")";
    return Status(status.Is(Code::kInvalid) ? Code::kUnavailable : status.code(),
                  "user.exec.command " + plugin.command + ": " + status.message() + hint);
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed(Status(Code::kUnavailable, std::strerror(errno)));
  const Descriptor output(ends[0]);
  Descriptor input(ends[1]);
  pid_t pid = 0;
  const int error = Spawn(plugin, input.get(), pid);
  input.Close();
  if (error != 0) return failed(Status(Code::kUnavailable, std::strerror(error)));
  std::string text;
  int end = 0;
  Status status = ReadOutput(output.get(), wait, text);
  if (status.ok()) status = Reap(pid, wait, end);
  if (!status.ok()) {
    kill(-pid, SIGKILL);
    waitpid(pid, &end, 0);
    return failed(status);
  }
  if (!WIFEXITED(end) || WEXITSTATUS(end) != 0) {
    return failed(Status(Code::kUnavailable, WIFEXITED(end) ? "exit code " + std::to_string(WEXITSTATUS(end))
                                                            : "ended by signal " + std::to_string(WTERMSIG(end))));
  }
  Result<ExecCredential> credential = ParseExecCredential(text);
  return credential.ok() ? credential : failed(credential.status());
}

}  // namespace trainyard::kube
