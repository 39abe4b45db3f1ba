// How a rank joins its world: store, identity of the attempt, communicator.
#ifndef TRAINYARD_TRAINER_TRAIN_SESSION_H_
#define TRAINYARD_TRAINER_TRAIN_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/comm/hang_watch.h"
#include "trainer/comm/pulse.h"
#include "trainer/comm/signs_of_life.h"
#include "trainer/comm/store.h"
#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/device/device.h"
#include "trainer/launch/world.h"
#include "trainer/train/running_mark.h"

namespace trainyard {

struct Session {
  World world;
  std::string job_uid;
  int64_t attempt = 1;
  std::string fingerprint;                          // FingerprintOf's; rank 0 alone has it
  std::string predecessor;                          // rank 0: the attempt that was alive when this one came, if one was
  std::vector<std::unique_ptr<RunningMark>> marks;  // rank 0: of run.dir and checkpoint.dir
  std::shared_ptr<Store> store;                     // keys of this attempt
  LifeOptions life;  // of every wait for files once the ranks have met; `alive` may be empty
  std::unique_ptr<Pulse> pulse;
  std::unique_ptr<HangWatch> hang;  // null in a world of one
  std::unique_ptr<Device> device;
  std::unique_ptr<Collectives> communicator;  // tensors of the device
  // Plain numbers, in a group of its own: they do not stand behind tensors that are in flight.
  std::unique_ptr<Communicator> control;
};

struct Joining {
  std::function<void(const std::string& verdict)> named;  // as HangWatch's
  // As ConnectOptions': the step waits for a device that nothing will wake, so that no exception reaches it.
  std::function<void(const std::string& failure)> stuck;
  std::function<void()> joined;  // all ranks have come, this one among them
  std::function<void()> alive;   // as LifeOptions has it
};

// Meets the other ranks. Rank 0 claims run.dir: it refuses one of another identity (ConfigError
// naming field and values) and, without TRAINYARD_JOB_UID, gives the run a uid and numbers the
// attempt. The fingerprint of `data` belongs to the identity; the others wait as long as rank 0 gets on with it.
// Throws ConfigError for a rank whose configuration or program is not rank 0's, DataError for one that has another
// number of samples, PeerError when a rank does not come in time or has ended, StoppedError when a stop is requested,
// also where a rank or the store has ended since.
Session JoinWorld(const Config& config, const Dataset& data, const Joining& joining);

// Tells the ranks that wait for this one in the store, or will, that it has ended without success,
// whether it had `joined` or not: but for a world that was complete without it, which is none of its business. Another
// job's rank may have found the port of a healthy one. Takes about a second where nobody answers, some at most; never
// throws.
void SayEnded(const World& world, bool joined, const std::string& why);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_SESSION_H_
