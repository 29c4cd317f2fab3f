//! TLS on both sides. In: PEM files, or nothing. Out: rustls configurations; the agent's certificate is pinned by SHA-256.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::error::Cause;
use crate::{AgentError, Fingerprint};

/// Certificates and their key, in PEM files.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate, then those that signed it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Identity {
    fn load(&self) -> Result<Chain, AgentError> {
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(refused(&self.key))?;
        Ok((certificates(&self.certificate)?, key))
    }
}

/// What is wrong with a file.
fn refused<E: Into<Cause>>(path: &Path) -> impl Fn(E) -> AgentError {
    move |e| AgentError::Certificate { path: path.to_owned(), source: e.into() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AgentError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(refused(path))?.collect();
    let chain = chain.map_err(refused(path))?;
    if chain.is_empty() { Err(refused(path)("it holds no certificate")) } else { Ok(chain) }
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>, AgentError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(refused(path))?;
    }
    Ok(Arc::new(roots))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn failed(error: impl Into<Cause>) -> AgentError {
    AgentError::Tls(error.into())
}

/// A new key and a certificate signed by itself; trusted only by those who pin it.
fn self_signed() -> Result<Chain, AgentError> {
    let made = rcgen::generate_simple_self_signed(vec!["tailsight-agent".to_owned()]).map_err(failed)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], key.into()))
}

/// The agent's side: its certificate (self-signed when none is given), and which callers are admitted (with an authority:
/// only those with a certificate that it signed).
pub(crate) fn server(
    identity: Option<&Identity>,
    client_ca: Option<&Path>,
) -> Result<(ServerConfig, Fingerprint), AgentError> {
    let (chain, key) = identity.map_or_else(self_signed, Identity::load)?;
    let fingerprint = Fingerprint::of(&chain[0]);
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(failed)?;
    let builder = match client_ca {
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider());
            builder.with_client_cert_verifier(verifier.build().map_err(failed)?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(failed)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok((config, fingerprint))
}

/// The coordinator's side: trusts the pinned certificate, or without a pin those that the authority signed.
pub(crate) fn client(
    pin: Option<Fingerprint>,
    ca: Option<&Path>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, AgentError> {
    let provider = provider();
    let verifier: Arc<dyn ServerCertVerifier> = match (pin, ca) {
        (Some(pin), _) => Arc::new(Pinned { pin, provider: provider.clone() }),
        (None, Some(path)) => {
            WebPkiServerVerifier::builder_with_provider(authorities(path)?, provider.clone()).build().map_err(failed)?
        }
        (None, None) => {
            return Err(failed(
                "no fingerprint and no certificate authority given; write HOST:PORT#FINGERPRINT as the agent printed \
                 it",
            ));
        }
    };
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(identity) => {
            let (chain, key) = identity.load()?;
            builder.with_client_auth_cert(chain, key).map_err(failed)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Trusts one certificate, whatever its names and dates; signatures are checked, so the peer has its key.
#[derive(Debug)]
struct Pinned {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Fingerprint::of(certificate);
        if shown == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!(
            "the agent's certificate ({shown}) is not the expected one ({}); the agent was restarted, or this is \
             another program",
            self.pin
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
