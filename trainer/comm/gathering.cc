#include "trainer/comm/gathering.h"

#include <exception>
#include <string>
#include <vector>

#include "common/text.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/comm/patience.h"

namespace trainyard {
namespace {

// Added to the count of those who have come by one who goes: it stands above any number of ranks.
constexpr int64_t kGone = int64_t{1} << 32;

std::string Here(int rank) { return Format("here/%d", rank); }

// "rank 2 of 4 is not there", "ranks 2, 3 of 4 are not there".
std::string Missing(Store& store, int size) {
  constexpr size_t kMost = 8;  // each costs a question to the store
  std::vector<std::string> ranks;
  for (int rank = 0; rank < size && ranks.size() <= kMost; ++rank) {
    if (!store.Get(Here(rank))) ranks.push_back(std::to_string(rank));
  }
  if (ranks.empty()) ranks.push_back(std::to_string(size - 1));  // has come by now
  if (ranks.size() > kMost) ranks.back() = "...";
  const std::optional<std::string> stranger = store.Get(kStrangerKey);
  return Format(ranks.size() == 1 ? "rank %s of %d is not there" : "ranks %s of %d are not there",
                Join(ranks, ", ").c_str(), size) +
         (stranger ? "; one of another world was: " + *stranger : "");
}

}  // namespace

void WorldStore::SayEnded(int rank, const std::string& why) {
  try {
    if (Add("ended/count", 1) == 1) Set("ended", Format("rank %d has ended: %s", rank, Cut(why, 500).c_str()));
  } catch (const std::exception&) {
    // Whoever waits for the store itself learns it from that.
  }
}

void WorldStore::CheckWorld() {
  if (const std::optional<std::string> ended = Get("ended")) throw PeerError(*ended);
}

void Gather(Store& store, int rank, int size, std::chrono::duration<double> deadline,
            const std::function<bool()>& stop) {
  const std::string what = "all ranks to join (parallel.rendezvous_seconds)";
  const auto problem = [&] { return Missing(store, size); };
  if (store.Add(Here(rank), 1) > 1)
    throw StrangerError(Format("rank %d is there already: another process has come as it; start each rank once", rank));
  if (store.Add("come", 1) == size) store.Set("complete", "");
  std::optional<Patience> patience(std::in_place, deadline, what, stop, Voice::kNowAndThen);
  std::exception_ptr leaves;  // why this rank would have left
  while (!store.Get("complete")) {
    try {
      store.CheckWorld();
      patience->Pause(problem);
    } catch (const Error&) {
      // All seemed to be there, but one of them had left: its number counts, and nobody will say that all have come.
      if (leaves) std::rethrow_exception(leaves);
      // From now on nobody can be the last one to come, unless that one is there already.
      if (store.Add("come", kGone) % kGone != size) throw;
      leaves = std::current_exception();
      patience.emplace(std::chrono::seconds(10), what, nullptr);
    }
  }
}

}  // namespace trainyard
