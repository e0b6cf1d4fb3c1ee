# What is installed, in four components:
#   client  fargpu, fargpu-measure, its libcuda.so.1, libnvidia-ml.so.1 and libnvcuvid.so.1, a rule
#           of udev
#   server  fargpud and the programs that it starts, its systemd unit and configuration
#   sim     the simulated driver (`fargpud --driver sim`, `fargpu run --sim`)
#   docs    README, docs/, examples/
#   cmake --build --preset release --target product
#   cmake --install build/release --prefix /usr/local [--component client]
# The target `product` builds what all components install, `product-<component>` what one does, and
# nothing else. Programs find what they need relative to themselves, so that a prefix can be moved.
set(libraries "${CMAKE_INSTALL_LIBDIR}/fargpu")

# fargpu_install(COMPONENT target...): installs programs and libraries, and makes them part of
# `product`. Nothing else may install a target (tests/install looks).
add_custom_target(product)
function(fargpu_install component)
  install(TARGETS ${ARGN} RUNTIME COMPONENT ${component}
                          LIBRARY DESTINATION "${libraries}" COMPONENT ${component})
  if(NOT TARGET product-${component})
    add_custom_target(product-${component})
    add_dependencies(product product-${component})
  endif()
  add_dependencies(product-${component} ${ARGN})
endfunction()

fargpu_install(client fargpu fargpu-measure fargpu-client fargpu-nvml fargpu-nvcuvid)
install(FILES "${FARGPU_CLIENT_LIBDIR}/libcuda.so" DESTINATION "${libraries}" COMPONENT client)
if(FARGPU_STATIC_DEPS)
  foreach(library "${CAPNP_SHARED}" "${KJ_SHARED}")
    get_filename_component(real "${library}" REALPATH)
    install(PROGRAMS "${real}" DESTINATION "${libraries}" COMPONENT client)
  endforeach()
endif()

# Below lib, whatever the libraries' folder is: that is where udev looks.
install(FILES client/memory/70-fargpu.rules DESTINATION lib/udev/rules.d COMPONENT client)

fargpu_install(server fargpud fargpu-worker fargpu-tls-relay)
# The unit names its files by their whole paths, which are known when it is installed. An operator's
# configuration is never overwritten.
install(CODE "
  set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
  cmake_path(ABSOLUTE_PATH prefix NORMALIZE)
  set(configuration \"${CMAKE_INSTALL_SYSCONFDIR}/fargpu\")
  if(prefix STREQUAL \"/usr\")
    cmake_path(ABSOLUTE_PATH configuration BASE_DIRECTORY /)
  endif()
  set(programs \"${CMAKE_INSTALL_BINDIR}\")
  set(documents \"${CMAKE_INSTALL_DOCDIR}\")
  foreach(folder configuration programs documents)
    cmake_path(ABSOLUTE_PATH \${folder} BASE_DIRECTORY \"\${prefix}\")
  endforeach()
  set(sysusers \"\${prefix}/lib/sysusers.d\")
  file(INSTALL \"${CMAKE_SOURCE_DIR}/server/daemon/fargpud.sysusers.conf\" DESTINATION \"\${sysusers}\" RENAME fargpud.conf)
  configure_file(\"${CMAKE_SOURCE_DIR}/server/daemon/fargpud.service.in\" \"${CMAKE_BINARY_DIR}/fargpud.service\" @ONLY)
  file(INSTALL \"${CMAKE_BINARY_DIR}/fargpud.service\" DESTINATION \"\${prefix}/lib/systemd/system\")
  if(NOT EXISTS \"\$ENV{DESTDIR}\${configuration}/fargpud.toml\")
    file(INSTALL \"${CMAKE_SOURCE_DIR}/server/daemon/fargpud.toml\" DESTINATION \"\${configuration}\")
  endif()
" COMPONENT server)

fargpu_install(sim fargpu-sim fargpu-sim-nvml)

install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT docs)
install(DIRECTORY docs examples DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT docs)
# Pages of docs/ link to these.
foreach(folder bench schema)
  install(FILES ${folder}/README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}/${folder}" COMPONENT docs)
endforeach()
foreach(component client server sim docs)
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT ${component})
endforeach()
