/*
 * Certificates for a test, by the program openssl. Asserts by cmocka.
 */
#ifndef KVL_TEST_CERTIFICATE_H
#define KVL_TEST_CERTIFICATE_H

/* DIR/NAME.crt with its key DIR/NAME.key, by itself or, where it has an alternative name
 * ("subjectAltName=IP:127.0.0.1"), signed by that of the name "ca", which is made first. */
void certificate_make(const char *dir, const char *name, const char *alternative);

#endif
