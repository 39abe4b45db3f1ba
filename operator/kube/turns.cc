#include "operator/kube/turns.h"

namespace trainyard::kube {

Turns::Turn Turns::Take(const net::Wait& wait) {
  const MutexLock lock(mutex_);
  while (free_ == 0 && !wait.stop && SteadyNow() < wait.deadline) returned_.WaitFor(mutex_, Seconds(0.5));
  if (free_ == 0) return nullptr;
  --free_;
  return Turn(this);
}

void Turns::Return() {
  const MutexLock lock(mutex_);
  ++free_;
  returned_.NotifyOne();
}

}  // namespace trainyard::kube
