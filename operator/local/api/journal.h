// The in-memory API on the disk: a snapshot, and every change since, written before anyone sees it. An
// operator that is killed therefore finds what it was last told, as it would in etcd.
//
//   api.json               {"version", "collections": {"plural.group": {"namespace/name": object}}}
//   api-<version>.journal  lines {"version", "collection", "key", "object"}; object null: deleted
//
// Changes outlive this process, not a loss of power: only snapshots are synced.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_JOURNAL_H_
#define TRAINYARD_OPERATOR_LOCAL_API_JOURNAL_H_

#include <filesystem>
#include <string>

#include "operator/base/mutex.h"
#include "operator/local/api/memory_api.h"

namespace trainyard::local {

// The API that it is given must outlive it, be given once, and may be written to by any thread. Open and
// Save are called by one.
class Journal {
 public:
  explicit Journal(std::filesystem::path folder) : folder_(std::move(folder)) {}
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Puts what was saved into `api` (nothing saved is fine), writes it as a snapshot, and follows `api`
  // from here on. kInvalid, and nothing written, when the folder cannot be read or written, holds something else, or
  // what was saved cannot be read or is damaged.
  Status Open(MemoryApi& api);

  // A snapshot when one is due: the journal is long, someone removed it, or the disk refused a change. Until one
  // succeeds the API goes on in memory alone, and every call says why. `force`: in any case.
  Status Save(bool force);

 private:
  Status Load(MemoryApi& api) const;
  Status Snapshot();
  void Append(const std::string& line);

  const std::filesystem::path folder_;
  MemoryApi* api_ = nullptr;
  Mutex mutex_;
  int file_ GUARDED_BY(mutex_) = -1;
  size_t bytes_ GUARDED_BY(mutex_) = 0;
  std::filesystem::path current_ GUARDED_BY(mutex_);
  bool due_ GUARDED_BY(mutex_) = false;  // a line was not written, so that only a snapshot helps
};

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_JOURNAL_H_
