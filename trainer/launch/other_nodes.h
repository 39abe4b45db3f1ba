// Whether the launchers of the other nodes are there still.
#ifndef TRAINYARD_TRAINER_LAUNCH_OTHER_NODES_H_
#define TRAINYARD_TRAINER_LAUNCH_OTHER_NODES_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "trainer/comm/store.h"

namespace trainyard {

// A launcher's count in the store of those that are done with it.
inline constexpr char kLaunchersDone[] = "launchers/done";

// Asks the store every two seconds, on a thread of its own: a rank that is frozen hears of nobody's end, and its
// launcher is who can end it.
class OtherNodes {
 public:
  enum class Sign { kThere, kEnded, kUnreachable };  // kEnded: one of them has signed off

  // `connect`: to the store, in a second or so; PeerError. Called again after a failure.
  explicit OtherNodes(std::function<std::shared_ptr<Store>()> connect);
  ~OtherNodes();  // waits for a question that is under way
  OtherNodes(const OtherNodes&) = delete;
  OtherNodes& operator=(const OtherNodes&) = delete;

  // The last answer, and for how many seconds it has been so. kThere until the store was reached for the first time.
  std::pair<Sign, double> Now() const;

 private:
  void Watch();
  Sign Ask();

  const std::function<std::shared_ptr<Store>()> connect_;
  std::shared_ptr<Store> store_;  // the thread's
  bool reached_ = false;          // the thread's
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Sign sign_ = Sign::kThere;
  double since_ = 0;
  std::thread thread_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_LAUNCH_OTHER_NODES_H_
