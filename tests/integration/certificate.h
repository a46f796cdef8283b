/*
 * Certificates for a test, by the program openssl. Asserts by cmocka.
 */
#ifndef KVL_TEST_CERTIFICATE_H
#define KVL_TEST_CERTIFICATE_H

/* Makes DIR/NAME.crt and its key DIR/NAME.key: self-signed or, with an alternative name
 * ("subjectAltName=IP:127.0.0.1"), signed by the certificate "ca", made before. */
void certificate_make(const char *dir, const char *name, const char *alternative);

#endif
