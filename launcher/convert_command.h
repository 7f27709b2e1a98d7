/** @file `ddptrain convert`: a text to token shards and back; files of weights into one another. Never calls
 * MPI. */
#ifndef DDP_CONVERT_COMMAND_H_
#define DDP_CONVERT_COMMAND_H_

/** See ddp_command_t. */
int ddp_convert_command(int argc, char **argv);

#endif
