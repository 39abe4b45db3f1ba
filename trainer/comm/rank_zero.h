// What rank 0 does for all ranks: they wait for it as long as it gets on, and fail together.
#ifndef TRAINYARD_TRAINER_COMM_RANK_ZERO_H_
#define TRAINYARD_TRAINER_COMM_RANK_ZERO_H_

#include <functional>
#include <memory>
#include <string>

#include "trainer/base/input_file.h"
#include "trainer/comm/control_plane.h"
#include "trainer/comm/signs_of_life.h"

namespace trainyard {

// A stop does not end it: what follows is the place where the ranks agree on that.
class RankZero {
 public:
  RankZero(std::shared_ptr<Store> store, ControlPlane& control, LifeOptions life);

  // Every rank calls it, with the same `what`: "rank 0 failed in <what>", "rank 1 waited for <what>". Rank 0 runs
  // `work`, which calls its tick at least once in a silence and no collective of `control`; the others run `help`,
  // which may be empty. Returns when it is done. Throws as FailTogether does, what `help` throws, and PeerError
  // where SignsOfLife::Wait for rank 0 does.
  void Do(const std::string& what, const std::function<void(const Tick&)>& work,
          const std::function<void()>& help = {});

 private:
  std::shared_ptr<Store> store_;
  ControlPlane& control_;
  SignsOfLife signs_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_RANK_ZERO_H_
