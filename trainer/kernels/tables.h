// The tables of the instruction sets that kernels_impl.cc is compiled for. Kernels() chooses among
// them; tests compare them. Calling a table that the CPU cannot run is an illegal instruction.
#ifndef TRAINYARD_TRAINER_KERNELS_TABLES_H_
#define TRAINYARD_TRAINER_KERNELS_TABLES_H_

#include "trainer/kernels/kernels.h"

namespace trainyard::kernels {

namespace avx512 {
extern const Table kTable;
}
namespace avx2 {
extern const Table kTable;
}
namespace baseline {
extern const Table kTable;
}

}  // namespace trainyard::kernels

#endif  // TRAINYARD_TRAINER_KERNELS_TABLES_H_
