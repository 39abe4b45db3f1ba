#include "trainer/device/plugin.h"

#include <dlfcn.h>

#include <exception>
#include <filesystem>
#include <system_error>

#include "common/build_info.h"
#include "trainer/base/message.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr char kLibrary[] = "libtrainyard_cuda.so";

std::string LoaderError() {
  const char* text = dlerror();
  return text ? text : "unknown error";
}

// Of a library that was opened.
void Ask(void* library, Plugin& plugin) {
  const auto function = reinterpret_cast<PluginFunction>(dlsym(library, kPluginSymbol));
  if (!function) {
    plugin.problem = plugin.path + " is no plug-in of this trainyard: it has no " + kPluginSymbol;
    return;
  }
  const PluginTable* table = function();
  if (table->build != PluginBuild()) {
    plugin.problem = plugin.path + " is of trainyard " + table->build + ", and this is " + PluginBuild() +
                     ": program and plug-in need one build";
    return;
  }
  plugin.table = table;
  try {
    plugin.devices = table->count(&plugin.no_device);
  } catch (const std::exception& error) {
    plugin.no_device = MessageOf(error);
  }
}

}  // namespace

std::string PluginBuild() { return std::string(Build().version) + " (" + Build().commit + ")"; }

Plugin OpenPlugin(const std::string& path) {
  Plugin plugin;
  plugin.path = path;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    plugin.problem = path + " is not there";
    return plugin;
  }
  // Global, as LibTorch's own libraries are loaded: its operators find each other's symbols. Never closed: they stay
  // registered.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    plugin.problem = path + " does not open: " + LoaderError();
    return plugin;
  }
  Ask(library, plugin);
  return plugin;
}

std::string PathOfCudaPlugin() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "lib" / "trainyard" / kLibrary).string();
}

const Plugin& CudaPlugin() {
  static const Plugin plugin = OpenPlugin(PathOfCudaPlugin());
  return plugin;
}

std::string Describe(const Plugin& plugin) {
  if (!plugin.table) return plugin.problem;
  if (plugin.devices == 0) return plugin.path + " opens, and sees no device: " + plugin.no_device;
  return Format("%s opens, and sees %d device%s", plugin.path.c_str(), plugin.devices, plugin.devices == 1 ? "" : "s");
}

}  // namespace trainyard
