// Logs of a run that never hold training up: JSON lines and TensorBoard, behind a bounded queue.
#ifndef TRAINYARD_TRAINER_METRICS_TELEMETRY_H_
#define TRAINYARD_TRAINER_METRICS_TELEMETRY_H_

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/metrics/event_file.h"

namespace trainyard {

using Scalars = std::vector<std::pair<std::string, double>>;

// Any thread may add. What does not fit the queue, or cannot be written, is counted and dropped.
class Telemetry {
 public:
  // Writes <directory>/log.jsonl (appending) and, if wanted, <directory>/tensorboard/.
  // Throws ConfigError when they cannot be made.
  Telemetry(const std::filesystem::path& directory, bool tensorboard, int64_t attempt, int64_t first_step);
  // Writes what is queued.
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  void Add(int64_t step, Scalars scalars);
  int64_t dropped() const;

 private:
  static constexpr size_t kCapacity = 1024;
  struct Point {
    int64_t step;
    double time;
    Scalars scalars;
  };
  void Loop();
  bool Write(const Point& point);

  int64_t attempt_;
  std::FILE* log_;
  std::unique_ptr<EventFile> events_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Point> queue_;
  int64_t dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_TELEMETRY_H_
