// What reads bytes of strangers, as functions of bytes: for libFuzzer (entry.cc) and for the seeded tests
// (tests/operator/hostile_test.cc). Any bytes will do; a promise that is broken ends the process.
#ifndef TRAINYARD_TESTS_FUZZ_TARGETS_H_
#define TRAINYARD_TESTS_FUZZ_TARGETS_H_

#include <string_view>

namespace trainyard::fuzz {

// The body of a watch, cut into pieces: every cut gives the same documents.
void WatchFrames(std::string_view bytes);
// A kubeconfig file.
void Kubeconfig(std::string_view bytes);
// A TrainingJob or a pod: projected, validated, and its status written back, which must read as what was written.
void TrainingJob(std::string_view bytes);
// The head of an answer of a server or of rank 0, and the /status behind it.
void HttpHead(std::string_view bytes);

}  // namespace trainyard::fuzz

#endif  // TRAINYARD_TESTS_FUZZ_TARGETS_H_
