#include "trainer/metrics/telemetry.h"

#include <cerrno>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/metrics/status.h"

namespace trainyard {

Telemetry::Telemetry(const std::filesystem::path& directory, bool tensorboard, int64_t attempt, int64_t first_step)
    : attempt_(attempt) {
  log_ = std::fopen((directory / "log.jsonl").c_str(), "abe");
  if (!log_)
    throw ConfigError("run.dir: cannot write " + (directory / "log.jsonl").string() + ": " + std::strerror(errno));
  if (tensorboard) events_ = std::make_unique<EventFile>(directory / "tensorboard", first_step);
  thread_ = std::thread([this] { Loop(); });
}

Telemetry::~Telemetry() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  std::fclose(log_);
}

void Telemetry::Add(int64_t step, Scalars scalars) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= kCapacity) {
    ++dropped_;
    return;
  }
  queue_.push_back({step, UnixTime(), std::move(scalars)});
  changed_.notify_all();
}

int64_t Telemetry::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void Telemetry::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Point point = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const bool written = Write(point);
    lock.lock();
    if (!written) ++dropped_;
  }
}

bool Telemetry::Write(const Point& point) {
  std::string text = Format("{\"time\":%.3f,\"attempt\":%lld,\"step\":%lld", point.time,
                            static_cast<long long>(attempt_), static_cast<long long>(point.step));
  for (const auto& [name, value] : point.scalars) text += ",\"" + name + "\":" + JsonFloat(static_cast<float>(value));
  text += "}\n";
  const bool logged = std::fwrite(text.data(), 1, text.size(), log_) == text.size() && std::fflush(log_) == 0;
  return (!events_ || events_->AddScalars(point.step, point.scalars)) && logged;
}

}  // namespace trainyard
