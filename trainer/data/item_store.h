// Prepared samples in a folder, one file each, for every process of a node.
//
// Files, and no mapping: what is read often lies in the page cache either way, and a disk that fails or a folder that
// vanishes is an answer here, where a mapped page would end the process with SIGBUS. A file appears in one step, so
// that no process waits for another; its checksum is proven at each reading, since nothing is synced: after a power
// failure a file may hold anything.
#ifndef TRAINYARD_TRAINER_DATA_ITEM_STORE_H_
#define TRAINYARD_TRAINER_DATA_ITEM_STORE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "trainer/data/volume.h"

namespace trainyard {

// Safe for any number of threads and processes.
class ItemStore {
 public:
  // `reserve_bytes` of the disk stay free. Touches nothing.
  ItemStore(std::filesystem::path folder, uint64_t reserve_bytes)
      : folder_(std::move(folder)), reserve_bytes_(reserve_bytes) {}

  // What Save kept of this sample under this stamp; nothing where it is not there, damaged, of another stamp, or cannot
  // be read. Never throws but for want of memory.
  std::optional<std::vector<Volume>> Load(int64_t id, uint64_t stamp) const;
  // Makes the folder where it is not there. Throws StorageError; then the sample is not kept, and nothing stays of it.
  void Save(int64_t id, uint64_t stamp, const std::vector<Volume>& volumes) const;
  // Removes the samples that `keep` does not want, and what writers left that ended long ago. Never throws.
  void Sweep(const std::function<bool(int64_t id)>& keep) const;

 private:
  std::filesystem::path PathOf(int64_t id) const;

  std::filesystem::path folder_;
  uint64_t reserve_bytes_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_ITEM_STORE_H_
