/* Writes an HDF5 file for program.sh: pictures/all [80, 9, 8, 3] uint8, features [80, 6] float32 in chunks of
 * 7, and the labels of both (labels, uint16, 4 classes). With a TEXT its
 * bytes too, as tokens (int16) in chunks of 100. Usage: make_hdf5 FILE [TEXT] */
#include <stdint.h>
#include <stdio.h>

#include <hdf5.h>

#define SAMPLES  80
#define PIXELS   (9 * 8 * 3)
#define FEATURES 6

static int put(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dims, const hsize_t *chunk,
               const void *data)
{
    hid_t space  = H5Screate_simple(ndim, dims, NULL);
    hid_t layout = H5Pcreate(H5P_DATASET_CREATE);
    hid_t links  = H5Pcreate(H5P_LINK_CREATE);
    hid_t id;
    int   failed = H5Pset_create_intermediate_group(links, 1) < 0;

    failed |= chunk != NULL && H5Pset_chunk(layout, ndim, chunk) < 0;
    id = H5Dcreate2(file, name, type, space, links, layout, H5P_DEFAULT);
    failed |= id < 0 || H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0;
    failed |= H5Dclose(id) < 0 || H5Pclose(links) < 0 || H5Pclose(layout) < 0 || H5Sclose(space) < 0;
    return failed;
}

static int put_text(hid_t file, const char *path)
{
    static int16_t tokens[65536];
    const hsize_t  chunk = 100;
    hsize_t        n     = 0;
    FILE          *text  = fopen(path, "rb");
    int            byte;

    if (text == NULL) {
        return 1;
    }
    while (n < 65536 && (byte = getc(text)) != EOF) {
        tokens[n++] = (int16_t)byte;
    }
    return fclose(text) != 0 || put(file, "tokens", H5T_NATIVE_INT16, 1, &n, &chunk, tokens);
}

int main(int argc, char **argv)
{
    static unsigned char pixels[SAMPLES][PIXELS];
    static float         features[SAMPLES][FEATURES];
    static uint16_t      labels[SAMPLES];
    const hsize_t        picture_dims[4] = {SAMPLES, 9, 8, 3};
    const hsize_t        feature_dims[2] = {SAMPLES, FEATURES};
    const hsize_t        chunk[2]        = {7, FEATURES};
    hid_t                file;
    int                  failed;

    if (argc != 2 && argc != 3) {
        return 2;
    }
    for (unsigned s = 0; s < SAMPLES; s++) {
        labels[s] = (uint16_t)(s % 4);
        for (unsigned i = 0; i < PIXELS; i++) {
            pixels[s][i] = (unsigned char)((s * 31 + i * 17) % 97 + (i % 4 == s % 4 ? 100 : 0));
        }
        for (unsigned i = 0; i < FEATURES; i++) {
            features[s][i] = (float)((s * 7 + i * 5) % 11) / 4.0F - (i == s % 4 ? 2.0F : 0.0F);
        }
    }
    file   = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    failed = file < 0 || put(file, "pictures/all", H5T_NATIVE_UINT8, 4, picture_dims, NULL, pixels) ||
             put(file, "features", H5T_NATIVE_FLOAT, 2, feature_dims, chunk, features) ||
             put(file, "labels", H5T_NATIVE_UINT16, 1, picture_dims, NULL, labels) ||
             (argc == 3 && put_text(file, argv[2])) || H5Fclose(file) < 0;
    return failed;
}
