// What only so many may do at once.
#ifndef TRAINYARD_OPERATOR_KUBE_TURNS_H_
#define TRAINYARD_OPERATOR_KUBE_TURNS_H_

#include <memory>

#include "operator/base/mutex.h"
#include "operator/net/wait.h"

namespace trainyard::kube {

// Thread-safe. Whoever waits has no place in a line.
class Turns {
 public:
  explicit Turns(int most) : free_(most) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  struct GiveBack {
    void operator()(Turns* turns) const { turns->Return(); }
  };
  // Ends when it is destroyed, by whichever thread; before its Turns is.
  using Turn = std::unique_ptr<Turns, GiveBack>;

  // Waits until there is one; empty at the deadline or the stop.
  Turn Take(const net::Wait& wait);

 private:
  void Return();

  Mutex mutex_;
  CondVar returned_;
  int free_ GUARDED_BY(mutex_);
};

}  // namespace trainyard::kube

#endif  // TRAINYARD_OPERATOR_KUBE_TURNS_H_
