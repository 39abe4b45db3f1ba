// How fast steps go, and when they will be done.
#ifndef TRAINYARD_TRAINER_METRICS_THROUGHPUT_H_
#define TRAINYARD_TRAINER_METRICS_THROUGHPUT_H_

#include <cstdint>
#include <deque>
#include <optional>

namespace trainyard {

// From the steps of this attempt alone. The first step warms everything up: it counts only until
// there is a second one.
class Throughput {
 public:
  // `done`: steps of earlier attempts.
  explicit Throughput(int64_t done) : marks_{{0, done}} {}

  // After step `done`. `seconds`: how long steps took so far, evaluations left out.
  void AddStep(int64_t done, double seconds);

  // Over the last five seconds of steps (of the last 1,024 where those are fewer), or over the last step when it took
  // longer; unknown before the first.
  std::optional<double> steps_per_second() const;

 private:
  static constexpr double kWindowSeconds = 5;
  static constexpr size_t kMostMarks = 1024;
  struct Mark {
    double seconds;
    int64_t done;
  };
  std::deque<Mark> marks_;  // ends of steps, the newest last; what lies between them is averaged
  bool warm_ = false;       // the start is not among them any more
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_THROUGHPUT_H_
