// Parameters that are never trained are in no checkpoint: they come from their source at every start.
#ifndef TRAINYARD_TRAINER_TRAIN_FROZEN_H_
#define TRAINYARD_TRAINER_TRAIN_FROZEN_H_

#include <memory>
#include <string>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/signs_of_life.h"
#include "trainer/comm/store.h"
#include "trainer/parallel/engine.h"

namespace trainyard {

bool HasFrozen(const ModelDeclaration& model);

// Throws ConfigError when the file is not there or lacks a frozen parameter of the model, and StorageError when it
// cannot be read.
std::unique_ptr<SafetensorsFile> OpenFrozen(const std::string& path, const ModelDeclaration& model);

enum class LoadedPart { kFrozen, kEverything };

// Sets the frozen parameters of every rank, or all of them, from a safetensors file that rank 0 reads, one after the
// other, while the others wait as RankZero says, with `life`. All ranks call it; call Engine::Publish afterwards.
// REQUIRES, for all of them: LoadWeights has checked the file on rank 0. Throws on rank 0 ConfigError when the file is
// not there or lacks a frozen one, StorageError when it cannot be read, and PeerError elsewhere.
void LoadFrom(const std::string& path, LoadedPart part, Engine& engine, Communicator& communicator,
              std::shared_ptr<Store> store, const LifeOptions& life);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_FROZEN_H_
