#include "trainer/config/cache_fields.h"

namespace trainyard {

void DeclareCacheFields(FieldTable& t, CacheConfig& cache) {
  constexpr auto kIdentity = FieldClass::kIdentity;
  t.Number("data.cache.rate", cache.rate, 0, 1, kIdentity,
           "The share N of the training samples that an epoch trains on, its window; 1: all of them.");
  t.Number("data.cache.replace", cache.replace, 0, 1, kIdentity,
           "The share of the window that leaves after each epoch for as many others.");
  t.OptInt("data.cache.bytes", cache.bytes, "null", 1, kIdentity,
           "What the samples of a node's window, and those that are prepared for the next one, may take; it makes the "
           "window smaller where that is needed. null: data.cache.rate alone decides.");
  t.Text("data.cache.dir", cache.dir, FieldClass::kFree,
         "A folder of the node, local and fast, where prepared samples are kept for all its ranks; null: nothing is "
         "kept, and each sample is prepared when it is read. It changes no result.");
}

}  // namespace trainyard
