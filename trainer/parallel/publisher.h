// After an update each rank has the new values of what it owns; a publisher gets every rank the rest.
#ifndef TRAINYARD_TRAINER_PARALLEL_PUBLISHER_H_
#define TRAINYARD_TRAINER_PARALLEL_PUBLISHER_H_

#include <cstdint>
#include <vector>

#include "trainer/comm/collectives.h"
#include "trainer/parallel/flat_state.h"

namespace trainyard {

// Used by one thread; `state` and `collectives` must outlive it. Where a rank owns everything there is nothing to get,
// and no collective is made.
class Publisher {
 public:
  Publisher(FlatState& state, Collectives& collectives, int64_t bucket_bytes);
  // Waits for what is on its way: its memory must outlive that.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // Refreshes what this rank owns, and begins to get the rest, a bucket after the other in forward's order. Until it is
  // there nobody may read a leaf, or change the master. Every rank calls it.
  void Begin();
  // Returns when the leaf of a parameter is whole, or when all are. Throws PeerError when a collective failed.
  void Await(size_t parameter);
  void AwaitAll();

  // The whole master, (total) float32: itself, or gathered in the place of the gradient, which is no more. Every rank
  // calls it.
  at::Tensor WholeMaster();

 private:
  FlatState& state_;
  Collectives& collectives_;
  std::vector<Range> buckets_;                // ascending; this rank owns a piece of each
  std::vector<size_t> last_bucket_;           // of each parameter
  std::vector<Collectives::Ticket> tickets_;  // of each bucket
  size_t awaited_ = 0;                        // buckets that are there
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_PUBLISHER_H_
