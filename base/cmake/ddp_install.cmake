# Installation: libraries, public headers, the program.

get_property(ddp_libraries GLOBAL PROPERTY DDP_LIBRARIES)
install(TARGETS ${ddp_libraries} EXPORT ddptrainTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddptrain)
