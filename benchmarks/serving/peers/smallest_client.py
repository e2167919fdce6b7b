"""The least that asks the daemon: python -I -S smallest_client.py SOCKET FILE."""

import _socket
import sys

with open(sys.argv[2], "rb") as stream:
    image = stream.read()
head = (
    "POST /infer/demo/efficientnet-lite0 HTTP/1.1\r\nHost: localhost\r\n"
    f"Content-Type: image/jpeg\r\nContent-Length: {len(image)}\r\nConnection: close\r\n\r\n"
)
client = _socket.socket(_socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(head.encode() + image)
answer = b""
while part := client.recv(65536):
    answer += part
sys.stdout.write(answer.partition(b"\r\n\r\n")[2].decode())
