#include "trainer/task/sample_cache.h"

#include <span>

#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"

namespace trainyard {

Window WindowOf(const CacheConfig& cache, int64_t length, int64_t item_bytes) {
  const Window window = ResolveWindow(length, cache.rate, cache.replace, cache.bytes, item_bytes);
  const auto samples = static_cast<long long>(length);
  // Nobody would ever hear of the samples outside.
  if (window.items > 0 && window.items < length && window.replace == 0)
    throw ConfigError(
        Format("data.cache.replace: %g leaves the same %lld of %lld samples in every epoch, and the others are never "
               "trained on; expected more than 0, or a window of all samples",
               cache.replace, static_cast<long long>(window.items), samples));
  if (window.items > 0) return window;
  if (ResolveWindow(length, cache.rate, cache.replace).items == 0)
    throw ConfigError(Format("data.cache.rate: %g of %lld samples is none; expected at least %.3g", cache.rate, samples,
                             1.0 / static_cast<double>(length)));
  throw ConfigError(
      Format("data.cache.bytes: %lld hold no window: a prepared sample takes %lld, and one more is "
             "prepared for the next epoch",
             static_cast<long long>(*cache.bytes), static_cast<long long>(item_bytes)));
}

SmartCacheOptions CacheOptionsOf(const Config& config, const CacheConfig& cache, int64_t length, int64_t item_bytes,
                                 const std::string& preparation) {
  SmartCacheOptions options;
  options.length = length;
  options.window = WindowOf(cache, length, item_bytes);
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.share = EnvInt("LOCAL_RANK", 0, 1 << 20).value_or(0);
  options.shares = EnvInt("LOCAL_WORLD_SIZE", 1, 1 << 20).value_or(1);
  if (options.share >= options.shares) options.share = 0;
  if (cache.dir.empty()) return options;
  // Two working directories may each have a runs/a, and the pods of two jobs the same paths.
  const std::string owner = fs::absolute(config.run.dir).lexically_normal().string() + '\n' + config.data.path + '\n' +
                            EnvText(env::kJobUid) + '\n' + preparation;
  options.folder =
      ResolveVolume(cache.dir) / ("trainyard-cache-" + HexDigest(Xxh3Of(std::span(owner.data(), owner.size()))));
  return options;
}

}  // namespace trainyard
