// Many independent pieces of work, on several threads.
#ifndef TRAINYARD_TRAINER_BASE_FOR_EACH_H_
#define TRAINYARD_TRAINER_BASE_FOR_EACH_H_

#include <cstdint>
#include <functional>

namespace trainyard {

// Calls run(0) ... run(count - 1), `threads` (0: one per processor) at a time, on threads of their own; on fewer where
// the machine has no more, and on this one where it has none. Meanwhile this one calls `watch` with how many are done:
// fifty times a second, and when all are. Behind an error none is begun: the first is thrown, when those that had begun
// have ended. So is what `watch` throws.
void ForEach(
    int64_t count, int64_t threads, const std::function<void(int64_t)>& run,
    const std::function<void(int64_t done)>& watch = [](int64_t) {});

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_FOR_EACH_H_
