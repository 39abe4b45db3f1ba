#include "trainer/launch/report_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/text.h"
#include "trainer/base/clock.h"
#include "trainer/base/environment.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string Line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

ReportChannel ReportChannel::FromEnvironment() {
  const auto fd = EnvInt(kReportFdVariable, 0, 1 << 20);
  if (!fd) return ReportChannel(-1);
  fcntl(*fd, F_SETFD, FD_CLOEXEC);
  fcntl(*fd, F_SETFL, O_NONBLOCK);
  return ReportChannel(*fd);
}

// One write of at most PIPE_BUF bytes is atomic; a longer one may be cut when the pipe is full, and
// the launcher skips what is not a whole JSON line.
bool ReportChannel::Send(const std::string& line) {
  return fd_ >= 0 && write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

void ReportChannel::SendStatus(const RankStatus& status) { Send(Line({{"status", status.ToJson()}})); }
// These lines may follow one that was cut.
void ReportChannel::SendHello(int64_t attempt, const std::string& run_dir) {
  Send("\n" + Line({{"hello", {{"attempt", attempt}, {"run_dir", run_dir}}}}));
}
bool ReportChannel::SendEnd(int code, const std::string& message) {
  const Json end = {{"code", code}, {"time", SteadySeconds()}, {"message", Shorten(message, 2000)}};
  return Send("\n" + Line({{"end", end}}));
}

}  // namespace trainyard
