// What a plug-in exports, and the trainer asks it for.
#ifndef TRAINYARD_TRAINER_DEVICE_PLUGIN_TABLE_H_
#define TRAINYARD_TRAINER_DEVICE_PLUGIN_TABLE_H_

#include "trainer/device/device.h"

namespace trainyard {

// The one symbol of a plug-in: a function without arguments that returns its table. Its number changes with what stands
// before `build`, which is nothing: every trainer can read that of every plug-in.
inline constexpr char kPluginSymbol[] = "trainyard_plugin_1";

struct PluginTable {
  // PluginBuild() of what the plug-in was compiled with. Only a trainer of the same build reads the rest: both pass C++
  // objects to each other.
  const char* build;
  // How many devices this process sees; none: `*why` says why.
  int (*count)(std::string* why);
  // Takes device `index` of those for this process; the calling thread computes on it. Throws ConfigError.
  Device* (*open)(int index);
};

using PluginFunction = const PluginTable* (*)();

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DEVICE_PLUGIN_TABLE_H_
