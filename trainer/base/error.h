// Exit codes (docs/architecture.md, "Exit codes") and the typed errors that carry them.
//
// The trainer throws; train_command.cc catches once and turns the error into the process's exit code and,
// through the launcher, into the termination message.
#ifndef TRAINYARD_TRAINER_BASE_ERROR_H_
#define TRAINYARD_TRAINER_BASE_ERROR_H_

#include <stdexcept>
#include <string>

namespace trainyard {

enum class ExitCode : int {
  kDone = 0,
  kUsage = 2,
  kConfig = 64,
  kData = 65,
  kPeer = 69,
  kInternal = 70,
  kOutOfMemory = 71,
  kNonFinite = 72,
  kHang = 73,
  kStorage = 74,
  kStopped = 75,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// The command line is wrong: unknown command, flag or value.
struct UsageError : Error {
  explicit UsageError(const std::string& what) : Error(ExitCode::kUsage, what) {}
};
// The configuration is wrong, or names a place that cannot be written.
struct ConfigError : Error {
  explicit ConfigError(const std::string& what) : Error(ExitCode::kConfig, what) {}
};
// Input data is missing, truncated or malformed; the message names file and problem.
struct DataError : Error {
  explicit DataError(const std::string& what) : Error(ExitCode::kData, what) {}
};
// Another rank or the network failed; this process is not the cause.
struct PeerError : Error {
  explicit PeerError(const std::string& what) : Error(ExitCode::kPeer, what) {}
};
// Another rank, which lives, has told why it failed; every rank knows, and all of them live.
struct ToldError : PeerError {
  explicit ToldError(const std::string& what) : PeerError(what) {}
};
// What was asked for does not fit into memory.
struct OutOfMemoryError : Error {
  explicit OutOfMemoryError(const std::string& what) : Error(ExitCode::kOutOfMemory, what) {}
};
struct NonFiniteError : Error {
  explicit NonFiniteError(const std::string& what) : Error(ExitCode::kNonFinite, what) {}
};
// A process that is none of the world whose store it has found: of another start, or a rank that is there already. The
// ranks of that world are not to hear of its end. 64, as a mistake of who started it; where it may mend itself, 69.
struct StrangerError : Error {
  explicit StrangerError(const std::string& what, ExitCode code = ExitCode::kConfig) : Error(code, what) {}
};
// Storage failed: a checkpoint could not be written or read, or none of the existing ones is good; a file system gave
// no answer about data, run.dir or a log.
struct StorageError : Error {
  explicit StorageError(const std::string& what) : Error(ExitCode::kStorage, what) {}
};
// The path is a mistake, and would be one again: nothing is there, it is no regular file, or a right is missing. Who
// reads what a user named makes a ConfigError or DataError of it; anything else that fails is the storage's.
struct RefusedPathError : StorageError {
  explicit RefusedPathError(const std::string& what) : StorageError(what) {}
};
// What lies in storage is damaged or not there, as a look at it has shown: it would be so again. Of what could not be
// looked at nothing is known, and that is none.
struct DamagedError : StorageError {
  explicit DamagedError(const std::string& what) : StorageError(what) {}
};
// A stop was requested; whatever was trained is durable.
struct StoppedError : Error {
  explicit StoppedError(const std::string& what) : Error(ExitCode::kStopped, what) {}
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_ERROR_H_
