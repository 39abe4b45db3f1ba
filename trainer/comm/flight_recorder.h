// Which collectives a rank has entered and which are over, and what it does else: what tells, when one does not end,
// which rank never came.
#ifndef TRAINYARD_TRAINER_COMM_FLIGHT_RECORDER_H_
#define TRAINYARD_TRAINER_COMM_FLIGHT_RECORDER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainyard {

// Ranks enter a group's collectives in one order: number n is the same one for all of them.
struct CollectiveRecord {
  uint64_t number = 0;  // from 1
  std::string name;     // "reduce_scatter"
  std::string unit;     // "bucket 3"
  int64_t bytes = 0;
};

// Where a rank stands, as it tells the others.
struct Flight {
  struct Group {
    uint64_t entered = 0, ended = 0;        // collectives
    std::vector<CollectiveRecord> entries;  // the last ones entered, ascending
  };
  std::map<std::string, Group> groups;  // by name
  std::string host;
  std::string phase;         // what its step does: "data"; empty: not known
  double phase_seconds = 0;  // for how long

  std::string ToText() const;
  // Nothing for a text that is none.
  static std::optional<Flight> FromText(const std::string& text);
};

// Safe for any number of threads.
class FlightRecorder {
 public:
  static constexpr size_t kKept = 16;  // entries of a group: more than can be in flight behind one that hangs, usually

  // The next collective of a group is asked for.
  void Enter(const std::string& group, const std::string& name, const std::string& unit, int64_t bytes);
  // The first one of a group that is not over is.
  void End(const std::string& group);
  void Phase(const std::string& phase);
  Flight Now() const;

 private:
  mutable std::mutex mutex_;
  Flight flight_;
  std::chrono::steady_clock::time_point phase_since_ = std::chrono::steady_clock::now();
};

// Who keeps the others waiting.
struct HangVerdict {
  std::vector<int> culprits;  // ascending; empty: nobody does, as far as can be seen
  // For people, one sentence. Empty where there is nothing to tell.
  std::string sentence;
};

// `flights`: of every rank, by rank. Some of them wait for a collective that does not end.
HangVerdict JudgeHang(std::span<const Flight> flights);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_FLIGHT_RECORDER_H_
