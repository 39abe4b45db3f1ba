# `cmake --install build/release --prefix DIR`: programs, the plug-in for GPUs where it was built, completions, manual pages, licence.
#
# An installed trainer looks for LibTorch in ../lib/trainyard, so that the folder may be moved. There the component
# `libtorch` (not part of a release) links the one that this machine has built with; docs/releasing.md says what else may.
include(GNUInstallDirs)
set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/trainyard)
set(programs trainyard-operator)
if(TRAINYARD_WITH_TORCH)
  list(APPEND programs trainyard)
  set_target_properties(trainyard PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/trainyard/torch/lib")
endif()
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
if(TRAINYARD_WITH_CUDA)
  # Beside LibTorch, whose own libraries find the rest.
  set_target_properties(trainyard_cuda PROPERTIES INSTALL_RPATH "$ORIGIN/torch/lib:$ORIGIN/nvidia/nccl/lib:$ORIGIN/nvidia/cu13/lib")
  install(TARGETS trainyard_cuda LIBRARY DESTINATION lib/trainyard COMPONENT programs)
endif()
add_custom_target(programs DEPENDS ${programs} $<$<BOOL:${TRAINYARD_WITH_CUDA}>:trainyard_cuda>)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${doc_dir} COMPONENT programs)

# Of what was compiled into them, whose texts Debian's packages hold.
find_program(DPKG_QUERY dpkg-query)
if(DPKG_QUERY)
  set(linked ${programs})
  if(TRAINYARD_WITH_CUDA)
    list(APPEND linked trainyard_cuda)
  endif()
  list(TRANSFORM linked REPLACE "(.+)" "\"$<TARGET_FILE:\\1>\"")
  list(JOIN linked " " linked)
  install(CODE "
    execute_process(COMMAND \"${CMAKE_SOURCE_DIR}/tools/licenses.py\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${doc_dir}/licenses\" ${linked} COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Installing: \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${doc_dir}/licenses\")" COMPONENT programs)
endif()

# The program that was built prints them.
function(install_printed program file)
  string(REPLACE ";" " " arguments "${ARGN}")
  install(CODE "
    set(to \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\")
    get_filename_component(folder \"\${to}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:${program}>\" ${arguments} OUTPUT_FILE \"\${to}\" COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Installing: \${to}\")" COMPONENT programs)
endfunction()
foreach(program ${programs})
  install_printed(${program} ${CMAKE_INSTALL_DATADIR}/bash-completion/completions/${program} completion bash)
  install_printed(${program} ${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_${program} completion zsh)
  install_printed(${program} ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/${program}.fish completion fish)
  install_printed(${program} ${CMAKE_INSTALL_MANDIR}/man1/${program}.1 manual --format man)
endforeach()

if(TRAINYARD_WITH_TORCH)
  install(CODE "
    set(to \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/trainyard\")
    file(MAKE_DIRECTORY \"\${to}\")
    foreach(folder torch nvidia)  # LibTorch looks for the second beside itself
      file(REMOVE \"\${to}/\${folder}\")
      file(CREATE_LINK \"${TORCH_PREFIX}/\${folder}\" \"\${to}/\${folder}\" SYMBOLIC)
      message(STATUS \"Installing: \${to}/\${folder}\")
    endforeach()" COMPONENT libtorch)
endif()
