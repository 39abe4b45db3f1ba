// libtrainyard_cuda.so: opened while the program runs, so that one program serves machines with GPUs and without.
#ifndef TRAINYARD_TRAINER_DEVICE_PLUGIN_H_
#define TRAINYARD_TRAINER_DEVICE_PLUGIN_H_

#include <string>

#include "trainer/device/plugin_table.h"

namespace trainyard {

// "0.1.0 (c52b856f1a2b)", of this program.
std::string PluginBuild();

// A plug-in, or why there is none.
struct Plugin {
  std::string path;
  const PluginTable* table = nullptr;
  std::string problem;  // empty where there is a table: "/usr/lib/...: libcublas.so.13: cannot open shared object file"
  int devices = 0;      // that this process sees
  std::string no_device;  // why there are none
};

// Opens the library at `path` and asks what it sees. It stays open. Never throws.
Plugin OpenPlugin(const std::string& path);

// Where that of this program lies, or would.
std::string PathOfCudaPlugin();

// That of this program, ../lib/trainyard/libtrainyard_cuda.so from where the program lies. Opened once.
const Plugin& CudaPlugin();

// One line for people: "libtrainyard_cuda.so opens; it sees 2 devices".
std::string Describe(const Plugin& plugin);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_PLUGIN_H_
