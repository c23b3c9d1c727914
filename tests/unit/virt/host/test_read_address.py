import socket

from nodetracker.virt.host.system import read_own_address


def test_the_address_of_the_default_route_is_one_of_this_machine():
    address = read_own_address()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((address, 0))


def test_without_a_route_of_ipv4_it_is_an_ipv6_address(monkeypatch):
    def connect(self, address):
        if self.family == socket.AF_INET:
            raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "getsockname", lambda _: ("2001:db8:5::7", 1, 0, 0))
    assert read_own_address() == "2001:db8:5::7"


def test_without_a_route_it_is_the_loopback_address(monkeypatch):
    def refuse(*_):
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert read_own_address() == "127.0.0.1"


def test_without_any_network_it_is_the_loopback_address(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    assert read_own_address() == "127.0.0.1"
