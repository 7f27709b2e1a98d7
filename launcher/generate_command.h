/** @file The command `generate`: text from a trained gpt2, one process. */
#ifndef DDP_GENERATE_COMMAND_H_
#define DDP_GENERATE_COMMAND_H_

int ddp_generate_command(int argc, char **argv);

#endif
