// What ranks tell each other as plain numbers: denominators, the consensus of a step, verdicts. Host memory and small;
// never on the way of the gradients.
#ifndef TRAINYARD_TRAINER_COMM_CONTROL_PLANE_H_
#define TRAINYARD_TRAINER_COMM_CONTROL_PLANE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainyard {

// Every rank makes the same calls in the same order; each returns when all ranks have made it. One thread at a time.
// Everything throws PeerError when a rank has left or the deadline has passed, OutOfMemoryError, and this rank's own
// error as it is. `what` completes messages.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  virtual int rank() const = 0;  // [0, size)
  virtual int size() const = 0;  // >= 1

  // Sums over the ranks, in place: ((x_0 + x_1) + x_2) + ..., the same bits on every rank.
  virtual void AllReduceNow(std::span<double> values, const std::string& what) = 0;
  // Every rank's values, in rank order; the ranks may give different counts.
  virtual std::vector<int64_t> AllGatherNow(std::span<const int64_t> values, const std::string& what) = 0;
  void Barrier(const std::string& what) {
    double zero = 0;
    AllReduceNow(std::span(&zero, 1), what);
  }
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_CONTROL_PLANE_H_
