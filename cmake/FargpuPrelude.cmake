# Precompiled headers: nearly every source includes the same headers of the standard library, and
# reading them is a third of the time that a build takes. They are headers that never change with
# this project; every source still includes what it uses (clang-tidy and the preset clang read the
# sources without them, and find what is missing; so does -DFARGPU_PRELUDE=OFF).
#
# A precompiled header serves only sources that are compiled with its own options. There are three:
# of libraries, of programs (not the same code model), and of tests (GoogleTest besides). What has
# options of its own goes without.
set(standard_headers
    <algorithm> <array> <atomic> <bit> <cerrno> <chrono> <condition_variable> <cstddef> <cstdint>
    <cstdio> <cstdlib> <cstring> <deque> <filesystem> <fstream> <functional> <iterator> <map>
    <memory> <mutex> <optional> <random> <set> <shared_mutex> <span> <string> <string_view>
    <thread> <unordered_map> <utility> <vector> <unistd.h> <fcntl.h> <signal.h> <sys/mman.h>
    <sys/socket.h> <sys/wait.h>)

# fargpu_make_prelude(NAME TYPE [library...]): the headers, for targets of TYPE (OBJECT or
# EXECUTABLE).
function(fargpu_make_prelude name type)
  set(source "${CMAKE_BINARY_DIR}/prelude/${name}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "int main() { return 0; }\n")
  if(type STREQUAL EXECUTABLE)
    add_executable(${name} "${source}")
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/prelude")
  else()
    add_library(${name} OBJECT "${source}")
  endif()
  target_link_libraries(${name} PRIVATE fargpu_options ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_precompile_headers(${name} PRIVATE ${standard_headers})
  # Sources wait for targets of this kind, but not for what the compiler makes of other sources.
  add_custom_target(${name}_made)
  add_dependencies(${name}_made ${name})
endfunction()

# fargpu_targets(RESULT FOLDER): every target of FOLDER and below.
function(fargpu_targets result folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    fargpu_targets(more "${inner}")
    list(APPEND targets ${more})
  endforeach()
  set(${result} ${targets} PARENT_SCOPE)
endfunction()

# fargpu_use_prelude(TARGET PRELUDE). The compiler takes a precompiled header only before all else
# that a command includes, so this is no REUSE_FROM: that would come after the include of
# fargpu_sim_abi.
function(fargpu_use_prelude target prelude)
  set(header "${CMAKE_BINARY_DIR}/CMakeFiles/${prelude}.dir/cmake_pch.hxx")
  set(options "-Winvalid-pch -include \"${header}\"")
  target_compile_options(${target} BEFORE PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:${options}>")
  add_dependencies(${target} ${prelude}_made)
endfunction()

# fargpu_use_preludes(): gives every target the prelude that fits. Call it when all targets are
# there.
function(fargpu_use_preludes)
  fargpu_targets(targets "${CMAKE_SOURCE_DIR}")
  fargpu_make_prelude(fargpu_prelude_of_libraries OBJECT)
  fargpu_make_prelude(fargpu_prelude_of_programs EXECUTABLE)
  if(FARGPU_TESTS)
    fargpu_make_prelude(fargpu_prelude_of_tests EXECUTABLE GTest::gtest GTest::gmock)
    target_precompile_headers(fargpu_prelude_of_tests PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    get_target_property(options ${target} COMPILE_OPTIONS)
    if(options MATCHES "-(O|g|m|f)" OR NOT libraries MATCHES "fargpu_options")
      continue()
    elseif(type MATCHES "^(STATIC|SHARED|OBJECT|MODULE)_LIBRARY$")
      fargpu_use_prelude(${target} fargpu_prelude_of_libraries)
    elseif(type STREQUAL EXECUTABLE AND libraries MATCHES "GTest::")
      fargpu_use_prelude(${target} fargpu_prelude_of_tests)
    elseif(type STREQUAL EXECUTABLE)
      fargpu_use_prelude(${target} fargpu_prelude_of_programs)
    endif()
  endforeach()
endfunction()
