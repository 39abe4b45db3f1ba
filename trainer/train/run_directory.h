// The directory of a run: who it belongs to and how often it was started.
//
//   uid, attempt        identity of the job and number of the newest attempt
//   config.json         the resolved configuration and the data's fingerprint
//   log.jsonl, tensorboard/, logs/, export/, best/, evaluation.json
#ifndef TRAINYARD_TRAINER_TRAIN_RUN_DIRECTORY_H_
#define TRAINYARD_TRAINER_TRAIN_RUN_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/base/input_file.h"
#include "trainer/config/config.h"

namespace trainyard {

struct Attempt {
  std::string job_uid;
  int64_t number = 1;
};

// Takes the directory for a new attempt, and makes it when it is not there; `fingerprint` is
// FingerprintOf's. TRAINYARD_JOB_UID (letters, digits, - _ .: it becomes part of names of files) and
// TRAINYARD_ATTEMPT win; else the uid is made once, and the attempt is one more than the highest
// found here and in the checkpoints' fence. A directory that has a uid keeps it: whose it is changes with the fence
// alone (RecordOwner), since this attempt may be refused yet.
// Throws ConfigError when the directory cannot be written or holds a run of another identity; then no file was changed,
// but both directories are there.
Attempt ClaimRunDirectory(const Config& config, const std::string& fingerprint);

// Whose the directory is: of the attempt that has taken the fence. Throws StorageError.
void RecordOwner(const Config& config, const Attempt& attempt);

// From now on the directory belongs to this identity: the attempt that claimed it has loaded what it starts from. One
// that fails before that binds nobody to its mistakes. What killed attempts have not finished here, an hour ago or
// more, is removed; `tick` is called for each file. Throws PeerError, and writes nothing, when a newer attempt owns the
// checkpoints.
void RecordIdentity(const Config& config, const std::string& fingerprint, const Attempt& attempt, const Tick& tick);

// What a run is told apart by besides its configuration: the data's fingerprint and, with init.from,
// the content of that file; not its path. A file that is gone is like any other: a run that goes on
// reads it no more.
std::string FingerprintOf(const Config& config, const std::string& data_fingerprint, const Tick& tick = {});

// What `fingerprint`, one of FingerprintOf, says about the file of init.from: empty when there was none.
std::string InitFromChecksum(const std::string& fingerprint);

// Throws ConfigError if what is trained differs between a saved configuration and `now`; returns the
// warnings about schedule fields that are now taken from the file.
std::vector<std::string> RequireSameIdentity(const std::string& origin, const std::string& saved_config,
                                             const std::string& saved_fingerprint, const Config& now,
                                             const std::string& fingerprint);

// For whoever only uses what was trained. Throws ConfigError if the model or its task differ between a saved
// configuration and `now`; with `frozen` parameters, which no checkpoint holds, also if their source does. What it was
// trained on and how may differ; returns a note where that is said.
std::vector<std::string> RequireSameModel(const std::string& origin, const std::string& saved_config,
                                          const std::string& saved_fingerprint, const Config& now,
                                          const std::string& fingerprint, bool frozen);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_RUN_DIRECTORY_H_
