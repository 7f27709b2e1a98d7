# Installation: libraries, public headers, the program, ddptrain.pc and the CMake package. All of it can be moved
# afterwards: nothing installed holds an absolute path.

include(CMakePackageConfigHelpers)

get_property(ddp_libraries GLOBAL PROPERTY DDP_LIBRARIES)
set(ddp_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddptrain)

# One target for a program that wants it all; what it does not call is not linked.
add_library(ddptrain_all INTERFACE)
set_target_properties(ddptrain_all PROPERTIES EXPORT_NAME ddptrain)
target_link_libraries(ddptrain_all INTERFACE ${ddp_libraries})

install(TARGETS ${ddp_libraries} ddptrain_all EXPORT ddptrainTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddptrain)
install(TARGETS ddptrain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT ddptrainTargets NAMESPACE ddptrain:: DESTINATION ${ddp_package_dir})

# The modules that the libraries (not the program) link: a user of the libraries needs these and no others.
set(ddp_package_deps)
set(ddp_pc_requires)
foreach(library ${ddp_libraries})
    get_target_property(links ${library} LINK_LIBRARIES)
    foreach(link ${links})
        if(link MATCHES "^ddp_dep::(.+)$")
            get_property(module GLOBAL PROPERTY DDP_DEP_MODULE_${CMAKE_MATCH_1})
            list(APPEND ddp_package_deps "${CMAKE_MATCH_1} ${module}")
            list(APPEND ddp_pc_requires ${module})
        endif()
    endforeach()
endforeach()
list(REMOVE_DUPLICATES ddp_package_deps)
list(REMOVE_DUPLICATES ddp_pc_requires)
list(JOIN ddp_package_deps "\" \"" ddp_package_deps)
list(JOIN ddp_pc_requires " " ddp_pc_requires)

# Static archives: a library stands before those it uses, which is the reverse of the order of the folders.
set(ddp_pc_libs)
foreach(library ${ddp_libraries})
    list(PREPEND ddp_pc_libs -l${library})
endforeach()
list(JOIN ddp_pc_libs " " ddp_pc_libs)
file(RELATIVE_PATH ddp_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" ddp_pc_prefix "${ddp_pc_prefix}")

configure_file(base/cmake/ddptrain.pc.in ddptrain.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ddptrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_package_config_file(base/cmake/ddptrainConfig.cmake.in ddptrainConfig.cmake
    INSTALL_DESTINATION ${ddp_package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(ddptrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ddptrainConfig.cmake ${CMAKE_BINARY_DIR}/ddptrainConfigVersion.cmake
    DESTINATION ${ddp_package_dir})
