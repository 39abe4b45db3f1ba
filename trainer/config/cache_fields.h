// The fields below data.cache, for every task whose samples are worth keeping: the task declares them among its own.
#ifndef TRAINYARD_TRAINER_CONFIG_CACHE_FIELDS_H_
#define TRAINYARD_TRAINER_CONFIG_CACHE_FIELDS_H_

#include <string>

#include "trainer/config/field_table.h"

namespace trainyard {

struct CacheConfig {
  double rate = 1;       // of the samples that an epoch trains on
  double replace = 0.1;  // of those that are others in the next epoch
  OptionalInt bytes;
  std::string dir;  // empty: nothing is kept
};

void DeclareCacheFields(FieldTable& table, CacheConfig& cache);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_CACHE_FIELDS_H_
