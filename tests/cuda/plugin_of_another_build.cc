// A plug-in whose table has nothing but the name of its build.
struct Table {
  const char* build;
};

extern "C" const Table* trainyard_plugin_1() {
  static const Table table{"0.0.0 (0123456789ab)"};
  return &table;
}
