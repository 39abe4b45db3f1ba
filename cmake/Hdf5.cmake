# HDF5's archive: Debian's shared library reads files in the network as well, and for that loads curl, Kerberos, LDAP, SSH and two
# TLS libraries, thirty in all, into a trainer that opens local files.
pkg_check_modules(HDF5 REQUIRED hdf5-serial)
add_library(hdf5 INTERFACE)
target_include_directories(hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
foreach(name hdf5_serial sz aec)
  find_library(archive_${name} lib${name}.a REQUIRED)
  target_link_libraries(hdf5 INTERFACE ${archive_${name}})
endforeach()
target_link_libraries(hdf5 INTERFACE ZLIB::ZLIB m ${CMAKE_DL_LIBS})
# Its libaec says its version in no header; --version and the bill of materials want one.
execute_process(COMMAND dpkg-query -W -f "\${source:Upstream-Version}" libaec-dev OUTPUT_VARIABLE LIBAEC_VERSION ERROR_QUIET)
if(NOT LIBAEC_VERSION)
  set(LIBAEC_VERSION "unknown")
endif()
