// What decides the bits of a run besides its configuration's identity: machine, libraries, layout.
#ifndef TRAINYARD_TRAINER_TRAIN_BITS_H_
#define TRAINYARD_TRAINER_TRAIN_BITS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/comm/control_plane.h"
#include "trainer/config/config.h"
#include "trainer/train/plan.h"

namespace trainyard {

// The version of LibTorch that this process has loaded, which need not be the one that it was compiled against.
std::string LoadedTorch();

// An object of scalars, as it goes into a manifest.
nlohmann::json BitsOf(const Config& config, const Plan& plan);

// "; not bit-exact ... because ..." for a run that goes on; empty when it is. A field that
// one side lacks counts as different.
std::string BitsDifference(const nlohmann::json& saved, const nlohmann::json& now);

// What computes on this rank, as far as last digits depend on it: the host's processor and kernels, or the GPU, or both
// where the optimizer is in host memory. `gpu`: its name.
std::string ProcessorsOf(const Config& config, const nlohmann::json& bits, const std::string& gpu);

// Which ranks' processors, by ProcessorsOf of each, make other bits than rank 0's: a warning for rank 0, empty on the
// others and where all are alike. Every rank calls it.
std::string OtherMachines(ControlPlane& control, const std::string& processors);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_BITS_H_
