// After an update each rank has the new values of what it owns; a publisher gets every rank the rest.
#ifndef TRAINYARD_TRAINER_PARALLEL_PUBLISHER_H_
#define TRAINYARD_TRAINER_PARALLEL_PUBLISHER_H_

#include <cstdint>
#include <optional>
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
  // there nobody may read a leaf, or change the master. Where leaves have no memory of their own, only what all ranks
  // hold is refreshed. Every rank calls it.
  void Begin();
  // The same, where values come one after the other: BeginParts; then, each when its part of what forward computes with
  // has them, SendPart of every owned piece in its order; EndParts when the leaves that stay float32 have theirs.
  void BeginParts();
  void SendPart(size_t piece);
  void EndParts();
  // Returns when the leaf of a parameter is whole, or when all are. Throws PeerError when a collective failed.
  void Await(size_t parameter);
  void AwaitAll();

  // Gives `piece` a parameter's values of the master in pieces and in order, put together a bucket at a time where a
  // rank holds a shard of it. Every rank calls it for the same parameters in the same order; `piece` may be empty, and
  // what it throws comes out when the collectives are over. Between two updates the bucket that was put together last
  // is kept.
  void Read(size_t parameter, const Pieces& piece);

  // The whole master, (total) float32: itself, or gathered, in the place of the gradient, which is no more, where that
  // is as large. Every rank calls it.
  at::Tensor WholeMaster();

 private:
  void GatherMaster(size_t bucket, const at::Tensor& into);

  FlatState& state_;
  Collectives& collectives_;
  std::vector<Range> buckets_;                // ascending; this rank owns a piece of each
  std::vector<size_t> last_bucket_;           // of each parameter
  at::Tensor whole_;                          // where buckets come together
  std::vector<Collectives::Ticket> tickets_;  // of each bucket
  std::optional<Collectives::Ticket> wide_;   // of the leaves that stay float32, while they are on their way
  size_t awaited_ = 0;                        // buckets that are there
  at::Tensor read_;                           // the master's values of one bucket,
  std::optional<size_t> read_bucket_;         // of this one
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_PUBLISHER_H_
