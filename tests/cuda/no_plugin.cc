// A library that is no plug-in.
extern "C" int trainyard_no_plugin() { return 0; }
