// A task's SmartCache as data.cache describes it.
#ifndef TRAINYARD_TRAINER_TASK_SAMPLE_CACHE_H_
#define TRAINYARD_TRAINER_TASK_SAMPLE_CACHE_H_

#include <cstdint>
#include <string>

#include "trainer/config/cache_fields.h"
#include "trainer/config/config.h"
#include "trainer/data/smart_cache.h"

namespace trainyard {

// The window of `length` samples that take `item_bytes` each when they are prepared. A pure function of the
// configuration and the data: the same on every rank and machine, and after each restart.
// Throws ConfigError naming field, value and what is allowed where it would be empty, or would hold some of the samples
// and never others.
Window WindowOf(const CacheConfig& cache, int64_t length, int64_t item_bytes);

// With the window above. The folder is one of this run and of `preparation` (Transforms::description, and whatever else
// decides what is kept) below data.cache.dir; the ranks of a node, of which LOCAL_RANK and LOCAL_WORLD_SIZE tell,
// share it.
SmartCacheOptions CacheOptionsOf(const Config& config, const CacheConfig& cache, int64_t length, int64_t item_bytes,
                                 const std::string& preparation);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TASK_SAMPLE_CACHE_H_
