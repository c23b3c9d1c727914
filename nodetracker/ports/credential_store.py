"""The part of the store that has the credentials of agents; conductors do not serve it."""

from datetime import timedelta
from typing import Protocol

from nodetracker.model.credential import Credential, JoinToken


class CredentialStore(Protocol):
    """Join tokens and credentials of agents, by the SHA-256 of each.

    Every method is one transaction and may raise the errors of `FleetStore`.
    """

    def create_join_token(
        self, token_hash: str, host: str | None, uses: int, lifetime: timedelta, created_by: str
    ) -> JoinToken:
        """Store a join token, and delete those that have expired."""

    def join_agent(
        self, token_hash: str, host: str, agent_id: str, secret_hash: str, address: str
    ) -> Credential:
        """Exchange a use of a join token for the credential of a host.

        The same secret again returns the same credential and uses nothing up.

        Raises:
            AuthenticationError: the token is unknown, has expired or is used up.
            ForbiddenError: it does not join this host; the message says which one does.
        """

    def find_credential(self, secret_hash: str, address: str) -> Credential:
        """Return a valid credential, and store its use every `USE_INTERVAL`.

        The first use of a new one ends the one before it.

        Raises:
            AuthenticationError: it is unknown, revoked or was replaced. One that was
                replaced raises the warning ``credential_reused`` of its host.
        """

    def renew_credential(self, host: str, secret_hash: str) -> Credential:
        """Store the next credential of a host; both are valid until the new one is used.

        Raises:
            NotFoundError: the host has none that is valid.
        """

    def revoke_credential(self, host: str) -> Credential:
        """End a host's credential; only a join token for the host gives it another.

        Raises:
            NotFoundError: the host has none.
        """

    def list_credentials(self) -> list[Credential]:
        """Return the credentials of all hosts, revoked ones included, in order of host."""
