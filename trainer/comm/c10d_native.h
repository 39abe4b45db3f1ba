// What c10d_store.cc and its test share; includes c10d's headers, so nothing else includes it.
#ifndef TRAINYARD_TRAINER_COMM_C10D_NATIVE_H_
#define TRAINYARD_TRAINER_COMM_C10D_NATIVE_H_

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trainer/comm/c10d_store.h"

namespace trainyard {

struct C10dStore::Native {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_COMM_C10D_NATIVE_H_
