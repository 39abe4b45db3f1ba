// How the ranks of an attempt come together, or learn that they cannot.
#ifndef TRAINYARD_TRAINER_COMM_GATHERING_H_
#define TRAINYARD_TRAINER_COMM_GATHERING_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "trainer/comm/store.h"

namespace trainyard {

// The store of one start of a world. While anyone waits for a key here, or in a PrefixStore of it, a
// rank that has ended ends the wait.
class WorldStore : public PrefixStore {
 public:
  using PrefixStore::PrefixStore;
  // Tells everyone who waits that this rank has ended, and why. The first one to say so is the one
  // that they name. Never throws: the store may be gone as well.
  void SayEnded(int rank, const std::string& why);
  // Throws PeerError when a rank has ended.
  void CheckWorld() override;
};

// What a rank of another world has said, for who waits for ranks of this one.
inline constexpr char kStrangerKey[] = "stranger";

// Waits until all ranks have come. Either every rank returns or none does: one that is stopped, or
// gives up, after the last one has come still returns, because the others will now connect to it.
// Throws StrangerError when another process has come as this rank; PeerError at the deadline naming up to eight ranks
// that are missing, or when a rank of a WorldStore has ended; StoppedError.
void Gather(Store& store, int rank, int size, std::chrono::duration<double> deadline,
            const std::function<bool()>& stop);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_GATHERING_H_
