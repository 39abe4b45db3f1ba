// What a run tells about itself, and to whom; never holds training up.
#ifndef TRAINYARD_TRAINER_METRICS_TELEMETRY_H_
#define TRAINYARD_TRAINER_METRICS_TELEMETRY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/metrics/event.h"
#include "trainer/metrics/sink_queue.h"

namespace trainyard {

// Any thread may add; one thread opens and closes.
class Telemetry {
 public:
  explicit Telemetry(int64_t attempt) : attempt_(attempt) {}
  ~Telemetry() { Close(); }
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // Every event added from now on also goes to the sink that `open` makes on a thread of its own.
  // `name` is the one that its drops are counted under.
  void To(const std::string& name, SinkQueue::Open open, const SinkOptions& options = {});
  void Add(int64_t step, EventContent content);

  // By sink.
  std::map<std::string, int64_t> dropped() const;
  // For people: sinks that have begun to lose events since the last call.
  std::vector<std::string> TakeWarnings();
  // Lets every sink write what it has, each until its closing deadline, all at the same time.
  // Returns, for people, which of them lost what.
  std::vector<std::string> Close();

 private:
  int64_t attempt_;
  std::vector<std::unique_ptr<SinkQueue>> sinks_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_TELEMETRY_H_
